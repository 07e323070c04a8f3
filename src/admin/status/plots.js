// The plots over time. Each has a table of its values, so nothing is told by the drawing alone.

import { byId, bytes, clock, element, lag, rate, seconds } from './format.js';
import { columns } from './history.js';

const HEIGHT = 170;
const NAMED = 3; // outages that are told one by one
const POWERS = Array.from({ length: 50 }, (_, power) => 2 ** power);
const flow = (n) => `${bytes(n)}/s`;

// A title, the format of its values, for each line its column, name, color and dashes, and what is special of the scale.
const CHARTS = [
	['Requests a second', rate, [['answered', 'answered', 'out'], ['asked', 'sent to the apiserver', 'in']]],
	['Events a second', rate, [['sentEvents', 'to clients', 'out'], ['receivedEvents', 'from the apiserver', 'in']]],
	['Bytes a second', flow, [['sentBytes', 'to clients', 'out'], ['receivedBytes', 'from the apiserver', 'in']], { incrs: POWERS }],
	['Requests a second by plan', rate, [
		['serve', 'served at once', 'out'], ['wait', 'served after a wait', 'blue'], ['old', 'served, marked as old', 'purple'],
		['forward', 'forwarded', 'in'], ['refuse', 'refused', 'bad'],
	]],
	['Lag of deliveries', lag, [['lagP50', 'p50', 'out'], ['lagP99', 'p99', 'in']]],
	['Memory', bytes, [['residentBytes', 'resident', 'out'], ['limit', 'limit', 'bad', [6, 6]]], { incrs: POWERS, top: memoryTop }],
];

// A limit that is far away would make a flat line of what is used. The table tells it all the same.
function memoryTop() {
	const used = Math.max(0, ...data.residentBytes);
	const limit = data.limit.at(-1) ?? 0;
	return limit <= used * 10 ? Math.max(used, limit) : used;
}

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const shown = [];
let data = columns(0, 0);
let range = [0, 1];
let outages = [];

const visible = (values) => values.filter((value) => value !== null);

function chart([title, format, lines, scale], number) {
	const figure = element('figure');
	const caption = element('figcaption', title);
	const place = element('div', undefined, 'plot');
	const table = element('table');
	const head = element('tr');
	const heads = ['', 'now', 'least', 'most'].map((text, i) => element(i === 0 ? 'td' : 'th', text, 'n'));
	heads.slice(1).forEach((cell) => { cell.scope = 'col'; });
	head.append(...heads);
	const rows = lines.map(([, name, kind]) => {
		const row = element('tr');
		const label = element('th');
		label.scope = 'row';
		label.append(element('i', '', kind), name);
		row.append(label, ...[0, 1, 2].map(() => element('td', '–', 'n')));
		return row;
	});
	const [top, body] = [element('thead'), element('tbody')];
	top.append(head);
	body.append(...rows);
	table.append(top, body);
	caption.id = `plot-${number}`;
	table.setAttribute('aria-labelledby', caption.id);
	figure.append(caption, place, table);
	byId('plots').append(figure);
	return { ...scale, title, format, lines, place, rows, now: heads[1], plot: undefined, at: null };
}

function options(chart, width) {
	const axis = { stroke: () => color('soft'), grid: { stroke: () => color('line'), width: 1 }, ticks: { show: false }, font: '11px system-ui, sans-serif' };
	return {
		width,
		height: HEIGHT,
		legend: { show: false },
		cursor: { sync: { key: 'time' }, y: false, drag: { x: false, y: false }, points: { size: 6 } },
		scales: {
			x: { time: true, range: () => range },
			y: { range: (_, __, most) => [0, (chart.top?.() ?? most) * 1.08 || 1] },
		},
		axes: [
			{ ...axis, size: 24, space: 70, values: (_, splits, __, ___, step) => splits.map((at) => clock(at, step < 60)) },
			{ ...axis, size: 64, space: 34, incrs: chart.incrs, values: (_, splits) => splits.map((value) => chart.format(value).replace(/\.0(?=\D|$)/, '')) },
		],
		series: [
			{},
			...chart.lines.map(([, label, kind, dash], i) => ({
				label, dash, width: 2, points: { show: true, size: 4, filter: alone }, stroke: () => color(kind),
				fill: i === 0 ? () => `${color(kind)}22` : undefined,
			})),
		],
		hooks: { drawClear: [shade], setCursor: [(plot) => { chart.at = plot.cursor.idx ?? null; tell(chart); }] },
	};
}

// Shades the times in which the apiserver was unreachable, behind grid and lines.
function shade(plot) {
	const { ctx, bbox } = plot;
	ctx.save();
	ctx.beginPath();
	ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
	ctx.clip();
	ctx.fillStyle = `${color('bad')}33`;
	for (const { from, until } of outages) {
		const [left, right] = [from, until ?? range[1]].map((at) => plot.valToPos(at, 'x', true));
		ctx.fillRect(left, bbox.top, Math.max(2, right - left), bbox.height);
	}
	ctx.restore();
}

// The same in words.
function tellOutages(now) {
	const named = outages.slice(-NAMED).map(({ from, until }) => `${clock(from, true)} for ${seconds((until ?? now) - from)}${until === null ? ' so far' : ''}`);
	const more = outages.length > NAMED ? `, and ${outages.length - NAMED} times before` : '';
	const text = outages.length > 0 ? `Shaded: the apiserver was unreachable, from ${named.join(', from ')}${more}.` : '';
	byId('outages').hidden = text === '';
	if (byId('outages').textContent !== text) byId('outages').textContent = text;
}

// The points that no line leads to: those between two moments at which nothing was measured.
function alone(plot, series) {
	const values = plot.data[series];
	return values.flatMap((value, i) => (value !== null && (values[i - 1] ?? null) === null && (values[i + 1] ?? null) === null ? [i] : []));
}

// Fills the table: the values under the cursor, or those of now.
function tell(chart) {
	const at = chart.at !== null && chart.at < data.at.length ? chart.at : data.at.length - 1;
	chart.now.textContent = chart.at === null || at < 0 ? 'now' : clock(data.at[at], true);
	const texts = [];
	chart.lines.forEach(([name, label], i) => {
		const values = visible(data[name] ?? []);
		const text = (value) => (value === null || value === undefined ? '–' : chart.format(value));
		const cells = [...chart.rows[i].cells].slice(1);
		const told = [text(data[name]?.[at]), text(values.length ? Math.min(...values) : null), text(values.length ? Math.max(...values) : null)];
		cells.forEach((cell, j) => { if (cell.textContent !== told[j]) cell.textContent = told[j]; });
		texts.push(`${label} ${told[0]}`);
	});
	const slider = { 'aria-valuemax': Math.max(0, data.at.length - 1), 'aria-valuenow': Math.max(0, at), 'aria-valuetext': `${chart.now.textContent}: ${texts.join(', ')}` };
	for (const [key, value] of Object.entries(slider)) chart.place.setAttribute(key, value);
}

// The arrow keys move the point in time that is told; Escape goes back to now.
function steer(event, chart) {
	const last = data.at.length - 1;
	const at = chart.at ?? last;
	const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: last, PageUp: at - 12, PageDown: at + 12, Escape: null }[event.key];
	if (to === undefined || last < 0) return;
	event.preventDefault();
	if (to === null) return chart.plot.setCursor({ left: -10, top: -10 });
	const index = Math.min(last, Math.max(0, to));
	chart.plot.setCursor({ left: chart.plot.valToPos(data.at[index], 'x'), top: 1 });
}

export function begin() {
	for (const [number, definition] of CHARTS.entries()) {
		const made = chart(definition, number);
		const { place, title } = made;
		for (const [key, value] of Object.entries({ role: 'slider', tabindex: 0, 'aria-label': `${title}: point in time`, 'aria-valuemin': 0 })) place.setAttribute(key, value);
		made.plot = new uPlot(options(made, Math.max(200, place.clientWidth)), [[], ...made.lines.map(() => [])], place);
		place.addEventListener('keydown', (event) => steer(event, made));
		shown.push(made);
	}
	const fit = new ResizeObserver(() => {
		for (const { plot, place } of shown) if (place.clientWidth > 0 && plot.width !== place.clientWidth) plot.setSize({ width: place.clientWidth, height: HEIGHT });
	});
	shown.forEach(({ place }) => fit.observe(place));
	// The canvases have the colors of the theme they were drawn in.
	matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => shown.forEach(({ plot }) => plot.redraw()));
}

export function update(status, span) {
	data = columns(status.now, span, status.memoryLimitBytes);
	// A daemon that is younger than the span fills the plot with what there is.
	range = [Math.max(status.now - span, Math.min(data.at[0] ?? status.now, status.now - 60)), status.now];
	outages = status.outages.filter(({ until }) => until === null || until > range[0]);
	tellOutages(status.now);
	for (const chart of shown) {
		chart.plot.setData([data.at, ...chart.lines.map(([name]) => data[name])]);
		tell(chart);
	}
}
