// The status page: asks for status.json again and again and shows it.

import { byId, bytes, clock, grouped, pairs, seconds } from './status/format.js';
import { newest, rates, remember } from './status/history.js';
import * as lists from './status/lists.js';
import * as picture from './status/picture.js';
import * as plots from './status/plots.js';

const EVERY = 2000;
const PATIENCE = 5000;

let last; // the last answer
let answered = false; // whether it is that of the last question
let timer;
let asking = false;

function headline({ spared, ...status }) {
	const { requests, bytes: size, events, deliveriesPerEvent } = spared;
	const memory = status.residentBytes ? bytes(status.residentBytes) : '–';
	return pairs([
		['requests spared', grouped(requests), 'lead'],
		['bytes spared', bytes(size), 'lead'],
		['events spared', grouped(events), 'lead'],
		['deliveries per event received', deliveriesPerEvent.toFixed(1), 'lead'],
		['reads from the caches', grouped(status.served)],
		['requests of its own', grouped(status.own)],
		['forwarded', grouped(status.forwarded)],
		['refused', grouped(status.refused)],
		['client connections', grouped(status.connections)],
		['client watches', grouped(status.watches)],
		['connections upstream', grouped(status.upstreamConnections)],
		['requests under way upstream', grouped(status.upstreamInFlight)],
		['memory', status.memoryLimitBytes ? `${memory} of ${bytes(status.memoryLimitBytes)}` : memory],
	]);
}

// What there is to know of an apiserver that does not answer.
function trouble({ upstream, caches, servedAgeSeconds, now }) {
	const since = clock(now - upstream.sinceSeconds, true);
	const age = caches.some((cache) => cache.ready) ? ` What is served is up to ${seconds(servedAgeSeconds)} old.` : '';
	return `The apiserver has been unreachable for ${seconds(upstream.sinceSeconds)}, since ${since}: ${upstream.lastError}.${age}`;
}

// A text that is the same is not set anew: it would be read out again.
function say(id, text) {
	if (byId(id).textContent !== text) byId(id).textContent = text;
}

// Without an error nobody has asked yet.
const isUnreachable = ({ upstream }) => !upstream.reachable && upstream.lastError !== '';

function draw() {
	if (last) picture.draw(answered ? last : undefined, answered ? rates() : undefined, answered && isUnreachable(last));
}

const span = () => Number(document.querySelector('#span input:checked').value);

// The span is in the address, so it is kept when the page is loaded again.
function takeSpan() {
	const wanted = new URLSearchParams(location.hash.slice(1)).get('span');
	for (const input of document.querySelectorAll('#span input')) if (input.value === wanted) input.checked = true;
	if (last) plots.update(last, span());
}

export function show(status) {
	[last, answered] = [status, true];
	remember(status);
	say('version', status.version);
	say('server', status.server);
	const word = status.ready ? 'ready' : `not ready: ${status.pending.join(', ')}`;
	const unreachable = isUnreachable(status);
	say('state', unreachable ? `${word}, apiserver unreachable` : word);
	byId('state').className = unreachable ? 'bad' : status.ready ? 'good' : 'wait';
	byId('trouble').hidden = !unreachable;
	say('trouble', unreachable ? trouble(status) : '');
	byId('tiles').replaceChildren(...headline(status));
	draw();
	plots.update(status, span());
	lists.show(status);
}

async function ask() {
	if (asking) return;
	asking = true;
	try {
		const answer = await fetch(`status.json?since=${newest()}`, { cache: 'no-store', signal: AbortSignal.timeout(PATIENCE) });
		if (!answer.ok) throw new Error(`status.json: ${answer.status}`);
		show(await answer.json());
	} catch (error) {
		answered = false;
		say('state', `informerd does not answer (${error.message})`);
		byId('state').className = 'bad';
		draw();
	}
	asking = false;
	later();
}

// Nobody looks at a page that is hidden, so it does not ask.
function later() {
	clearTimeout(timer);
	if (!document.hidden) timer = setTimeout(ask, EVERY);
}

plots.begin();
addEventListener('resize', draw);
takeSpan();
addEventListener('hashchange', takeSpan);
byId('span').addEventListener('change', () => {
	history.replaceState(null, '', `#span=${span()}`);
	takeSpan();
});
document.addEventListener('visibilitychange', () => (document.hidden ? clearTimeout(timer) : ask()));
ask();
