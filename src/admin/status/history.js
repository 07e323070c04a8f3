// What the daemon has recorded over the last hour, and what is measured between two answers.

const HOUR = 3600;
const GAP = 15; // seconds between two points that are not joined: nobody measured in between
const WINDOW = 6000; // milliseconds that the current rates are measured over
const COUNTERS = ['answered', 'asked', 'sentEvents', 'receivedEvents', 'sentBytes', 'receivedBytes'];
export const PLANS = ['serve', 'wait', 'old', 'forward', 'refuse'];

let points = [];
let answers = [];

// The time after which points are to be asked for.
export const newest = () => points.at(-1)?.at ?? 0;

export function remember(status) {
	// The clock of the daemon was set back.
	if (newest() > status.now) points = [];
	points = [...points.filter((point) => point.at > status.now - HOUR), ...status.past.filter((point) => point.at > newest())];
	const measured = { time: performance.now(), counts: status.traffic };
	const restarted = answers.some(({ counts }) => COUNTERS.some((name) => counts[name] > measured.counts[name]));
	answers = restarted ? [] : answers.filter((answer) => measured.time - answer.time <= WINDOW);
	answers.push(measured);
}

// What is counted a second at present; undefined before it was measured.
export function rates() {
	const [first, last] = [answers[0], answers.at(-1)];
	const between = (from, to, time) =>
		time > 0 ? Object.fromEntries(COUNTERS.map((name) => [name, Math.max(0, to[name] - from[name]) / time])) : undefined;
	if (answers.length > 1) return between(first.counts, last.counts, (last.time - first.time) / 1000);
	const [a, b] = points.slice(-2);
	return b && b.at - a.at <= GAP ? between(a, b, b.at - a.at) : undefined;
}

// Columns for the plots, from `span` seconds ago until now. Where nobody measured there is a null.
export function columns(now, span, limit) {
	const made = { at: [], limit: [], residentBytes: [], lagP50: [], lagP99: [] };
	for (const name of [...COUNTERS, ...PLANS]) made[name] = [];
	for (let i = 1; i < points.length; i++) {
		const [a, b] = [points[i - 1], points[i]];
		if (b.at <= now - span) continue;
		const time = b.at - a.at;
		const joined = time > 0 && time <= GAP && COUNTERS.every((name) => b[name] >= a[name]);
		made.at.push(b.at);
		for (const name of COUNTERS) made[name].push(joined ? (b[name] - a[name]) / time : null);
		for (const name of PLANS) made[name].push(joined ? (b.plans[name] - a.plans[name]) / time : null);
		made.lagP50.push(joined ? b.lagP50 : null);
		made.lagP99.push(joined ? b.lagP99 : null);
		made.residentBytes.push(b.residentBytes || null);
		made.limit.push(limit ?? null);
	}
	return made;
}
