// Elements, and numbers as people read them. Texts are set as texts, never as HTML.

export const byId = (id) => document.getElementById(id);

export function element(name, text, kind) {
	const made = document.createElement(name);
	if (text !== undefined) made.textContent = text;
	if (kind) made.className = kind;
	return made;
}

export const grouped = (n) => n.toLocaleString('en-US', { maximumFractionDigits: 0 });

export function bytes(n) {
	const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
	let unit = 0;
	for (; Math.abs(n) >= 1024 && unit < units.length - 1; unit++) n /= 1024;
	return `${unit === 0 || Math.abs(n) >= 100 ? n.toFixed(0) : n.toFixed(1)} ${units[unit]}`;
}

export function seconds(n) {
	if (n < 120) return `${n} s`;
	if (n < 7200) return `${Math.floor(n / 60)} min`;
	return `${Math.floor(n / 3600)} h`;
}

// A number a second: with a digit behind the point where it is small.
export const rate = (n) => (n > 0 && n < 10 ? n.toFixed(1) : grouped(n));

// A duration that was measured, in seconds.
export function lag(n) {
	if (n === 0) return '0';
	if (n < 0.001) return `${Math.round(n * 1e6)} µs`;
	if (n < 1) return `${(n * 1000).toFixed(n < 0.01 ? 1 : 0)} ms`;
	return `${n.toFixed(n < 10 ? 1 : 0)} s`;
}

const two = (n) => String(n).padStart(2, '0');

// The time of day of seconds since 1970.
export function clock(at, withSeconds) {
	const time = new Date(at * 1000);
	const text = `${two(time.getHours())}:${two(time.getMinutes())}`;
	return withSeconds ? `${text}:${two(time.getSeconds())}` : text;
}

// Pairs of name and value as the parts of a <dl>.
export function pairs(all, kind) {
	return all.map(([name, value, own]) => {
		const part = element('div', undefined, own ?? kind);
		part.append(element('dt', name), element('dd', value));
		return part;
	});
}
