// The picture: clients → informerd → apiserver.

import { byId, bytes, grouped, rate, seconds } from './format.js';

const WIDEST = 22;
const THINNEST = 1.5;
const NARROW = 640; // below this width the three stand above each other

const parts = new Map();
let layout = '';

// Sets the attributes of the part with this name; makes it if it is not there yet.
function part(id, name, attributes, text) {
	if (!parts.has(id)) {
		parts.set(id, document.createElementNS('http://www.w3.org/2000/svg', name));
		byId('picture').append(parts.get(id));
	}
	const made = parts.get(id);
	for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
	if (text !== undefined && made.textContent !== text) made.textContent = text;
}

const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

function node(id, { x, y, width, height }, { name, kind, lines }) {
	part(`${id} box`, 'rect', { x, y, width, height, rx: 10, class: kind });
	const first = y + height / 2 - (lines.length * 18) / 2 + 5;
	const most = Math.floor(width / 7.2);
	part(`${id} name`, 'text', { x: x + width / 2, y: first, 'text-anchor': 'middle', class: 'name' }, name);
	lines.forEach(([text, bad], i) => {
		const at = { x: x + width / 2, y: first + 19 + i * 18, 'text-anchor': 'middle', class: bad ? 'bad' : '' };
		part(`${id} line ${i}`, 'text', at, cut(text, most));
	});
}

function line(id, [x1, y1, x2, y2], width, kind) {
	part(id, 'line', { x1, y1, x2, y2, 'stroke-width': width.toFixed(1), class: kind });
	// Data moves towards the clients. The marks are in the direction of the line, which begins at the source.
	const still = kind.includes('bad') || width < 4;
	part(`${id} pulse`, 'line', { x1, y1, x2, y2, class: still ? 'pulse still' : 'pulse' });
}

// The line between two neighbours: events and bytes, each as wide as it is much, and what that is in numbers.
function link(id, { from, to, upright }, measured, most, kind) {
	const width = (name) => (measured && most[name] > 0 ? Math.max(THINNEST, (measured[name] / most[name]) * WIDEST) : THINNEST);
	const texts = measured
		? [`${rate(measured.events)} events/s`, `${bytes(measured.bytes)}/s`, `${rate(measured.requests)} requests/s`]
		: ['measuring…', '', ''];
	const middle = [(from.x + to.x) / 2, (from.y + to.y) / 2];
	const apart = 16;
	const lines = upright
		? [[from.x - apart, from.y, to.x - apart, to.y], [from.x + apart, from.y, to.x + apart, to.y]]
		: [[from.x, from.y - apart, to.x, to.y - apart], [from.x, from.y + apart, to.x, to.y + apart]];
	line(`${id} events`, lines[0], width('events'), kind);
	line(`${id} bytes`, lines[1], width('bytes'), kind);
	const places = upright
		? [[middle[0] - 36, middle[1] + 4, 'end'], [middle[0] + 36, middle[1] - 5, 'start'], [middle[0] + 36, middle[1] + 14, 'start']]
		: [[middle[0], middle[1] - 36, 'middle'], [middle[0], middle[1] + 45, 'middle'], [middle[0], middle[1] + 64, 'middle']];
	places.forEach(([x, y, anchor], i) => {
		part(`${id} text ${i}`, 'text', { x, y, 'text-anchor': anchor, class: i < 2 ? 'value' : '' }, texts[i]);
	});
	return texts;
}

// Where the boxes are, and the points that the lines connect.
function places(width) {
	if (width < NARROW) {
		const box = (i) => ({ x: 16, y: 14 + i * 166, width: width - 32, height: 76 });
		const end = (i, below) => ({ x: width / 2, y: box(i).y + (below ? 76 : 0) });
		return { height: 436, boxes: [0, 1, 2].map(box), ends: [[end(1, false), end(0, true)], [end(2, false), end(1, true)]], upright: true };
	}
	const wide = Math.min(230, width * 0.22);
	const step = (width - 40 - wide) / 2;
	const box = (i) => ({ x: 20 + i * step, y: 46, width: wide, height: 96 });
	const end = (i, right) => ({ x: box(i).x + (right ? wide : 0), y: 94 });
	return { height: 184, boxes: [0, 1, 2].map(box), ends: [[end(1, false), end(0, true)], [end(2, false), end(1, true)]], upright: false };
}

// `status` is undefined while informerd does not answer: the last numbers are then not shown any more.
export function draw(status, rates, unreachable) {
	const svg = byId('picture');
	const width = Math.max(280, svg.clientWidth);
	const { height, boxes, ends, upright } = places(width);
	if (layout !== `${upright}`) {
		parts.clear();
		svg.replaceChildren();
		layout = `${upright}`;
	}
	svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
	svg.setAttribute('height', height);
	const sent = rates && { events: rates.sentEvents, bytes: rates.sentBytes, requests: rates.answered };
	const received = rates && { events: rates.receivedEvents, bytes: rates.receivedBytes, requests: rates.asked };
	const most = rates && { events: Math.max(sent.events, received.events), bytes: Math.max(sent.bytes, received.bytes) };
	const behind = status?.caches.filter((cache) => cache.failing || !cache.ready).length ?? 0;
	const ready = status?.caches.filter((cache) => cache.ready).length;
	const apiserver = !status ? 'not known' : unreachable ? `unreachable for ${seconds(status.upstream.sinceSeconds)}` : `${grouped(status.upstreamConnections)} connections`;
	node('clients', boxes[0], {
		name: 'clients', kind: '',
		lines: [[status ? `${grouped(status.watches)} watches` : ''], [status ? `${grouped(status.connections)} connections` : '']],
	});
	node('informerd', boxes[1], {
		name: 'informerd', kind: !status ? 'bad' : status.ready ? '' : 'wait',
		lines: [
			[status ? `${ready} of ${status.caches.length} informers ready` : 'does not answer', !status],
			[behind > 0 ? `${behind} ${behind === 1 ? 'does' : 'do'} not follow` : status ? 'all follow the apiserver' : '', behind > 0],
		],
	});
	node('apiserver', boxes[2], {
		name: 'apiserver', kind: unreachable ? 'bad' : '',
		lines: [[(status?.server ?? '').replace(/^https?:\/\//, '')], [apiserver, unreachable]],
	});
	const left = link('left', { from: ends[0][0], to: ends[0][1], upright }, sent, most, status ? 'out' : 'bad');
	const right = link('right', { from: ends[1][0], to: ends[1][1], upright }, received, most, unreachable || !status ? 'bad' : 'in');
	const told = (texts) => texts.filter(Boolean).join(', ');
	const broken = unreachable ? `Broken: the apiserver is ${apiserver}. ` : status ? '' : 'informerd does not answer. ';
	svg.setAttribute('aria-label', `${broken}From informerd to clients: ${told(left)}. From the apiserver to informerd: ${told(right)}.`);
}
