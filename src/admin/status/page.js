// The status page: asks for status.json again and again and shows it. Texts are set as texts, never as HTML.
'use strict';

const EVERY = 2000;
const GAP = 15; // seconds between two points that are not joined: nobody measured in between
const byId = (id) => document.getElementById(id);

function element(name, text, kind) {
	const made = document.createElement(name);
	if (text !== undefined) made.textContent = text;
	if (kind) made.className = kind;
	return made;
}

function drawn(name, attributes, text) {
	const made = document.createElementNS('http://www.w3.org/2000/svg', name);
	for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
	if (text !== undefined) made.textContent = text;
	return made;
}

const grouped = (n) => n.toLocaleString('en-US', { maximumFractionDigits: 0 });

function bytes(n) {
	const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
	let unit = 0;
	for (; Math.abs(n) >= 1024 && unit < units.length - 1; unit++) n /= 1024;
	return `${unit === 0 || Math.abs(n) >= 100 ? n.toFixed(0) : n.toFixed(1)} ${units[unit]}`;
}

function seconds(n) {
	if (n < 120) return `${n} s`;
	if (n < 7200) return `${Math.floor(n / 60)} min`;
	return `${Math.floor(n / 3600)} h`;
}

function tiles(status) {
	const { requests, bytes: spared, events, deliveriesPerEvent } = status.spared;
	return [
		['requests spared', grouped(requests)],
		['bytes spared', bytes(spared)],
		['events spared', grouped(events)],
		['deliveries per event received', deliveriesPerEvent.toFixed(1)],
		['reads from the caches', grouped(status.served)],
		['requests of its own', grouped(status.own)],
		['forwarded', grouped(status.forwarded)],
		['refused', grouped(status.refused)],
		['client connections', grouped(status.connections)],
		['client watches', grouped(status.watches)],
		['connections upstream', grouped(status.upstreamConnections)],
		['requests under way upstream', grouped(status.upstreamInFlight)],
		['memory', status.residentBytes ? bytes(status.residentBytes) : '–'],
	].map(([name, value]) => {
		const tile = element('div');
		tile.append(element('dt', name), element('dd', value));
		return tile;
	});
}

// Rates between neighbouring points, in runs without a gap or a restart.
function rates(past) {
	const runs = [[]];
	for (let i = 1; i < past.length; i++) {
		const [a, b] = [past[i - 1], past[i]];
		const time = b.at - a.at;
		if (time <= 0 || time > GAP) {
			runs.push([]);
			continue;
		}
		const upstream = b.own - a.own + (b.forwarded - a.forwarded);
		runs[runs.length - 1].push({ at: b.at, served: (b.served - a.served) / time, upstream: upstream / time });
	}
	return runs.filter((run) => run.length > 0);
}

// The least of 1, 2, 5, 10, 20, … that is not below n.
function nice(n) {
	const power = 10 ** Math.floor(Math.log10(Math.max(n, 1)));
	return [1, 2, 5, 10].map((m) => m * power).find((m) => m >= n);
}

function plot(status, width) {
	const [left, right, top, bottom] = [48, width - 10, 12, 190];
	const runs = rates(status.past);
	const points = runs.flat();
	const parts = [];
	const most = nice(Math.max(1, ...points.map((p) => Math.max(p.served, p.upstream))));
	const first = status.past.length > 0 ? status.past[0].at : status.now;
	const span = Math.max(60, status.now - first);
	const x = (at) => right - ((status.now - at) / span) * (right - left);
	const y = (rate) => bottom - (rate / most) * (bottom - top);
	for (const part of [0, 0.5, 1]) {
		const at = y(most * part);
		parts.push(drawn('line', { class: 'grid', x1: left, x2: right, y1: at, y2: at }));
		parts.push(drawn('text', { x: left - 6, y: at + 4, 'text-anchor': 'end' }, String(most * part)));
	}
	for (const part of [0, 0.5, 1]) {
		const anchor = ['end', 'middle', 'start'][part * 2];
		const text = part === 0 ? 'now' : `${seconds(Math.round(span * part))} ago`;
		parts.push(drawn('text', { x: right - (right - left) * part, y: bottom + 20, 'text-anchor': anchor }, text));
	}
	for (const run of runs) {
		const line = (key) => run.map((p) => `${x(p.at).toFixed(1)},${y(p[key]).toFixed(1)}`).join(' L');
		const [from, to] = [x(run[0].at).toFixed(1), x(run[run.length - 1].at).toFixed(1)];
		parts.push(drawn('path', { class: 'fill', d: `M${from},${bottom} L${line('served')} L${to},${bottom} Z` }));
		parts.push(drawn('path', { class: 'upstream', d: `M${line('upstream')}` }));
		parts.push(drawn('path', { class: 'served', d: `M${line('served')}` }));
	}
	if (points.length === 0) {
		parts.push(drawn('text', { x: (left + right) / 2, y: (top + bottom) / 2, 'text-anchor': 'middle' }, 'measuring…'));
	}
	return parts;
}

function scope(cache) {
	const parts = [cache.namespace ? `namespace ${cache.namespace}` : 'all', cache.fieldSelector, cache.labelSelector];
	return parts.filter(Boolean).join(', ');
}

function doing(cache) {
	const step = cache.retrySeconds === null ? cache.step : `${cache.step} in ${seconds(cache.retrySeconds)}`;
	return cache.ready ? step : `not ready: ${step}`;
}

function rows(caches) {
	return caches.flatMap((cache) => {
		const row = element('tr');
		const lag = cache.silentSeconds ?? cache.idleSeconds;
		const kind = cache.failing ? 'bad' : cache.ready ? 'good' : 'wait';
		row.append(
			element('td', `${cache.resource}${cache.encoding === 'json' ? '' : ` (${cache.encoding})`}`),
			element('td', scope(cache)),
			element('td', doing(cache), kind),
			...[seconds(lag), grouped(cache.objects), bytes(cache.bytes), seconds(cache.windowSeconds), grouped(cache.watchers), grouped(cache.events), grouped(cache.relists)].map((text) => element('td', text, 'n')),
		);
		if (!cache.lastError || (cache.ready && !cache.failing)) return [row];
		const error = element('tr');
		const cell = element('td', `${cache.lastError} (${seconds(cache.errorSeconds ?? 0)} ago)`, 'error');
		cell.colSpan = 10;
		error.append(cell);
		return [row, error];
	});
}

function clients(all) {
	return all.map((client) => {
		const row = element('tr');
		row.append(
			...[client.address || '–', client.user || '–', client.program, client.protocol].map((text) => element('td', text)),
			...[grouped(client.watches), grouped(client.requests), bytes(client.bytes)].map((text) => element('td', text, 'n')),
		);
		return row;
	});
}

function forwards(all) {
	return all.map(({ count, reason, address, user, program, cause, change }) => {
		const row = element('tr');
		const words = [reason, address || '–', user || '–', program].map((text) => element('td', text));
		const texts = [cause, change].map((text) => element('td', text, 'text'));
		row.append(element('td', grouped(count), 'n'), ...words, ...texts);
		return row;
	});
}

// What there is to know of an apiserver that does not answer.
function trouble({ upstream, caches, servedAgeSeconds, now }) {
	const since = new Date((now - upstream.sinceSeconds) * 1000).toLocaleTimeString();
	const age = caches.some((cache) => cache.ready) ? ` What is served is up to ${seconds(servedAgeSeconds)} old.` : '';
	return `The apiserver has been unreachable for ${seconds(upstream.sinceSeconds)}, since ${since}: ${upstream.lastError}.${age}`;
}

let draw = () => {};
addEventListener('resize', () => draw());

function show(status) {
	byId('version').textContent = status.version;
	byId('server').textContent = status.server;
	const state = byId('state');
	const word = status.ready ? 'ready' : `not ready: ${status.pending.join(', ')}`;
	// Without an error nobody has asked yet.
	const unreachable = !status.upstream.reachable && status.upstream.lastError !== '';
	state.textContent = unreachable ? `${word}, apiserver unreachable` : word;
	state.className = unreachable ? 'bad' : status.ready ? 'good' : 'wait';
	byId('trouble').hidden = !unreachable;
	byId('trouble').textContent = unreachable ? trouble(status) : '';
	const ready = status.caches.filter((cache) => cache.ready).length;
	byId('informers').textContent = `${ready} of ${status.caches.length} ready`;
	byId('tiles').replaceChildren(...tiles(status));
	draw = () => {
		// As wide as it is shown, so that its texts are neither shrunk nor stretched.
		const width = Math.max(280, byId('plot').clientWidth);
		byId('plot').setAttribute('viewBox', `0 0 ${width} 220`);
		byId('plot').replaceChildren(...plot(status, width));
	};
	draw();
	byId('caches').replaceChildren(...rows(status.caches));
	byId('count').textContent = status.clients.length;
	byId('clients').replaceChildren(...clients(status.clients));
	byId('forwards').replaceChildren(...forwards(status.forwards));
}

async function live() {
	try {
		const answer = await fetch('status.json', { cache: 'no-store' });
		if (!answer.ok) throw new Error(`status.json: ${answer.status}`);
		show(await answer.json());
	} catch (error) {
		const state = byId('state');
		state.textContent = `informerd does not answer (${error.message})`;
		state.className = 'bad';
	}
	setTimeout(live, EVERY);
}

live();
