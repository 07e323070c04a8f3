// A table that can be sorted by each column, and whose rows open to show more.

import { element, pairs } from './format.js';

// `columns`: {title, text(row), sort(row), number, spare, kind(row)}; a column without `sort` is sorted by its text.
// `key(row)` tells rows apart. `details(row)`, if there is one, gives pairs of name and value, `error(row)` a text.
export class Table {
	constructor(body, { columns, key, details, error, none, by, down }) {
		Object.assign(this, { body, columns, key, details, error, none });
		this.by = by ?? 0;
		this.down = down ?? false;
		this.open = new Set();
		this.made = new Map();
		this.rows = [];
		const head = element('tr');
		this.heads = columns.map((column, i) => {
			const cell = element('th', undefined, this.kind(column));
			cell.scope = 'col';
			const button = element('button', column.title);
			button.type = 'button';
			button.addEventListener('click', () => this.sort(i));
			cell.append(button);
			head.append(cell);
			return cell;
		});
		body.parentElement.tHead.append(head);
	}

	kind(column, row) {
		return [column.number && 'n', column.spare && 'spare', column.wraps && 'text', column.long && 'long', row && column.kind?.(row)].filter(Boolean).join(' ');
	}

	// Numbers begin with the greatest, texts with A. The same column again turns it round.
	sort(by) {
		this.down = this.by === by ? !this.down : Boolean(this.columns[by].number);
		this.by = by;
		this.show(this.rows);
	}

	sorted() {
		const { sort, text } = this.columns[this.by];
		const of = sort ?? text;
		const compare = (a, b) => (typeof a === 'number' && typeof b === 'number' ? a - b : String(a).localeCompare(String(b), 'en', { numeric: true }));
		const sign = this.down ? -1 : 1;
		return [...this.rows].sort((a, b) => sign * compare(of(a), of(b)) || compare(this.key(a), this.key(b)));
	}

	show(rows) {
		this.rows = rows;
		this.heads.forEach((head, i) => {
			if (i === this.by) head.setAttribute('aria-sort', this.down ? 'descending' : 'ascending');
			else head.removeAttribute('aria-sort');
		});
		const keys = new Set(rows.map(this.key));
		for (const key of [...this.made.keys()].filter((key) => !keys.has(key))) this.made.delete(key);
		for (const key of [...this.open].filter((key) => !keys.has(key))) this.open.delete(key);
		const all = this.sorted().flatMap((row) => this.lines(row));
		if (all.length === 0) all.push(this.empty());
		this.put(all);
	}

	// Rows that stay are not moved, so that the focus stays where it is.
	put(all) {
		if (all.length === this.body.rows.length && all.every((row, i) => row === this.body.rows[i])) return;
		const focused = document.activeElement;
		this.body.replaceChildren(...all);
		if (focused !== document.activeElement && this.body.contains(focused)) focused.focus({ preventScroll: true });
	}

	empty() {
		const row = element('tr');
		const cell = element('td', this.none, 'none');
		cell.colSpan = this.columns.length;
		row.append(cell);
		return row;
	}

	// The row, with its error and its details if there are any.
	lines(row) {
		const key = this.key(row);
		if (!this.made.has(key)) this.made.set(key, this.make(key));
		const made = this.made.get(key);
		this.columns.forEach((column, i) => {
			const cell = made.main.cells[i];
			const holder = i === 0 && made.button ? made.button : cell;
			const [text, kind] = [String(column.text(row)), this.kind(column, row)];
			if (holder.textContent !== text) holder.textContent = text;
			if (cell.className !== kind) cell.className = kind;
			if (column.long) cell.title = text;
		});
		const lines = [made.main];
		const error = this.error?.(row);
		if (error) {
			made.error.cells[0].textContent = error;
			lines.push(made.error);
		}
		const open = this.open.has(key);
		made.button?.setAttribute('aria-expanded', String(open));
		if (open) {
			const list = element('dl');
			list.append(...pairs(this.details(row)));
			made.details.cells[0].replaceChildren(list);
			lines.push(made.details);
		}
		return lines;
	}

	make(key) {
		const made = { main: element('tr'), error: this.across('error'), details: this.across('') };
		made.details.className = 'details';
		made.main.append(...this.columns.map(() => element('td')));
		if (this.details) {
			made.button = element('button');
			made.button.type = 'button';
			made.button.addEventListener('click', () => {
				if (!this.open.delete(key)) this.open.add(key);
				this.show(this.rows);
			});
			made.main.cells[0].append(made.button);
		}
		return made;
	}

	across(kind) {
		const row = element('tr');
		const cell = element('td', '', kind);
		cell.colSpan = this.columns.length;
		row.append(cell);
		return row;
	}
}
