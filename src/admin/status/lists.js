// What the tables show.

import { byId, bytes, grouped, seconds } from './format.js';
import { Table } from './table.js';

const or = (text) => text || '–';
const count = (title, name, more) => ({ title, number: true, text: (row) => grouped(row[name]), sort: (row) => row[name], ...more });
const whole = (name, value) => [name, value, 'whole'];

function scope(cache) {
	const parts = [cache.namespace ? `namespace ${cache.namespace}` : 'all', cache.fieldSelector, cache.labelSelector];
	return parts.filter(Boolean).join(', ');
}

function doing(cache) {
	const step = cache.retrySeconds === null ? cache.step : `${cache.step} in ${seconds(cache.retrySeconds)}`;
	return cache.ready ? step : `not ready: ${step}`;
}

const silence = (cache) => cache.silentSeconds ?? cache.idleSeconds;
const lastError = (cache) => `${cache.lastError}${cache.errorSeconds === null ? '' : ` (${seconds(cache.errorSeconds ?? 0)} ago)`}`;

const CACHES = {
	none: 'No informer runs yet.',
	key: (cache) => [cache.resource, cache.apiVersion, cache.encoding, scope(cache)].join(' '),
	error: (cache) => (cache.lastError && (cache.failing || !cache.ready) ? lastError(cache) : ''),
	columns: [
		{ title: 'resource', text: (cache) => `${cache.resource}${cache.encoding === 'json' ? '' : ` (${cache.encoding})`}`, long: true },
		{ title: 'of', text: scope, spare: true, long: true },
		{ title: 'state', text: doing, kind: (cache) => (cache.failing ? 'bad' : cache.ready ? 'good' : 'wait') },
		{ title: 'last heard', number: true, text: (cache) => seconds(silence(cache)), sort: silence, spare: true },
		count('objects', 'objects'),
		{ title: 'memory', number: true, text: (cache) => bytes(cache.bytes), sort: (cache) => cache.bytes, spare: true },
		{ title: 'window', number: true, text: (cache) => seconds(cache.windowSeconds), sort: (cache) => cache.windowSeconds, spare: true },
		count('watchers', 'watchers'),
		count('events', 'events', { spare: true }),
		count('lists', 'relists', { spare: true }),
	],
	details: (cache) => [
		['watchers, in groups of the same selection', `${grouped(cache.watchers)} in ${grouped(cache.groups)}`],
		['revision', cache.resourceVersion],
		['freshness', `the apiserver was last heard ${seconds(silence(cache))} ago, with an event ${seconds(cache.idleSeconds)} ago`],
		['objects', `${grouped(cache.objects)}, ${bytes(cache.bytes)}`],
		['window', `${grouped(cache.windowEvents)} events, ${bytes(cache.windowBytes)}, the oldest ${seconds(cache.windowSeconds)} old`],
		['a watch can start after', cache.windowOldest],
		['events received', grouped(cache.events)],
		['lists after the first', grouped(cache.relists)],
		['watches given up because they said nothing', grouped(cache.silentWatches ?? 0)],
		['resource and scope', `${cache.resource} ${cache.apiVersion}, ${scope(cache)}`],
		['kept without clients', cache.pinned ? 'yes' : 'no'],
		...(cache.refuses?.length ? [['taken as refused by the apiserver', cache.refuses.join(', ')]] : []),
		whole('last error', cache.lastError ? lastError(cache) : 'none'),
	],
};

const sum = (all, name) => all.reduce((total, each) => total + (each[name] ?? 0), 0);
const distinct = (all, name) => [...new Set(all.map((each) => or(each[name])))];
const some = (all, what) => (all.length === 1 ? all[0] : `${all.length} ${what}`);

const CLIENTS = {
	none: 'No client has asked for anything yet.',
	by: 4,
	down: true,
	key: (client) => `${client.user}\n${client.program}`,
	columns: [
		{ title: 'program', text: (client) => client.program, long: true },
		{ title: 'user', text: (client) => or(client.user), spare: true, long: true },
		{ title: 'address', text: (client) => some(client.addresses, 'addresses'), spare: true },
		{ title: 'protocol', text: (client) => client.protocols.join(', '), spare: true },
		count('watches', 'watches'),
		count('requests', 'requests'),
		{ title: 'bytes', number: true, text: (client) => bytes(client.bytes), sort: (client) => client.bytes, spare: true },
		count('forwarded', 'forwarded', { spare: true }),
	],
	details: (client) => [
		...client.members.map((member) => [
			`${or(member.address)}, ${or(member.protocol)}`,
			`${grouped(member.watches)} watches, ${grouped(member.requests)} requests, ${bytes(member.bytes)}, ${grouped(member.forwarded ?? 0)} reads forwarded`,
		]),
		['user', or(client.user)],
		...client.reasons.map(({ reason, count, cause, change }) => whole(`${grouped(count)} reads forwarded: ${reason}`, `${cause}; ${change}`)),
		...(client.forwarded > 0 && client.reasons.length === 0 ? [whole('reads forwarded', 'for reasons that are not among the 50 most frequent')] : []),
	],
};

// One row for each user and program, from all its addresses and protocols.
function merged(clients, forwards) {
	const same = (a, b) => a.user === b.user && a.program === b.program;
	return Object.values(Object.groupBy(clients, CLIENTS.key)).map((members) => {
		const reasons = forwards.filter((forward) => same(forward, members[0]));
		return {
			user: members[0].user,
			program: members[0].program,
			addresses: distinct(members, 'address'),
			protocols: distinct(members, 'protocol'),
			watches: sum(members, 'watches'),
			requests: sum(members, 'requests'),
			bytes: sum(members, 'bytes'),
			forwarded: sum(members, 'forwarded'),
			members,
			reasons: Object.values(Object.groupBy(reasons, (forward) => forward.reason)).map((of) => ({ ...of[0], count: sum(of, 'count') })),
		};
	});
}

const FORWARDS = {
	none: 'No read was forwarded.',
	by: 1,
	down: true,
	key: (forward) => [forward.reason, forward.address, forward.user, forward.program, forward.protocol].join('\n'),
	columns: [
		{ title: 'reason', text: (forward) => forward.reason },
		count('reads', 'count'),
		{ title: 'address', text: (forward) => or(forward.address), spare: true },
		{ title: 'user', text: (forward) => or(forward.user), spare: true, long: true },
		{ title: 'program', text: (forward) => forward.program, long: true },
		{ title: 'cause', text: (forward) => forward.cause, wraps: true, spare: true },
		{ title: 'what to change', text: (forward) => forward.change, wraps: true, spare: true },
	],
	details: (forward) => [
		whole('cause', forward.cause),
		whole('what to change', forward.change),
		['address', or(forward.address)],
		['user', or(forward.user)],
		['protocol', or(forward.protocol)],
	],
};

const QUEUES = {
	none: 'No worker has joined a queue.',
	key: (queue) => `${queue.user}\n${queue.name}`,
	columns: [
		{ title: 'queue', text: (queue) => queue.name, long: true },
		{ title: 'user', text: (queue) => or(queue.user), spare: true, long: true },
		count('workers', 'workers'),
		count('ready', 'depth'),
		count('held', 'held'),
		count('delayed', 'delayed', { spare: true }),
		count('retries', 'retries', { spare: true }),
	],
	details: (queue) => [
		['objects selected', grouped(queue.objects)],
		['keys queued since the start', grouped(queue.adds)],
		['retries', grouped(queue.retries)],
		['delayed keys', grouped(queue.delayed)],
		['deletions to be handled', grouped(queue.deletions)],
		['returned by workers that vanished', grouped(queue.returned)],
		['the key held longest', queue.held > 0 ? seconds(Math.round(queue.longestSeconds)) : '–'],
		['user', or(queue.user)],
	],
};

let tables;

export function show({ caches, clients, forwards, queues }) {
	tables ??= [['caches', CACHES], ['clients', CLIENTS], ['forwards', FORWARDS], ['queues', QUEUES]].map(([id, definition]) => new Table(byId(id), definition));
	const programs = merged(clients, forwards);
	[caches, programs, forwards, queues].forEach((rows, i) => tables[i].show(rows));
	byId('informers').textContent = `${caches.filter((cache) => cache.ready).length} of ${caches.length} ready`;
	byId('count').textContent = `${programs.length} by user and program`;
}
