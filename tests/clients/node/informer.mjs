// An informer on the official JavaScript client. Prints what it sees in the lines of `judge informer`: a JSON object
// per event, SYNCED, and STATE on a line on stdin.

import { parseArgs } from 'node:util';
import * as k8s from '@kubernetes/client-node';

const { values: options } = parseArgs({
    options: {
        kubeconfig: { type: 'string' },
        resource: { type: 'string' },
        namespace: { type: 'string' },
        'label-selector': { type: 'string' },
    },
});
const { namespace, 'label-selector': labelSelector } = options;

const say = (line) => process.stdout.write(JSON.stringify(line) + '\n');
const keyOf = ({ metadata }) => (metadata.namespace ? `${metadata.namespace}/${metadata.name}` : metadata.name);

const config = new k8s.KubeConfig();
if (options.kubeconfig) config.loadFromFile(options.kubeconfig);
else config.loadFromCluster();
const core = config.makeApiClient(k8s.CoreV1Api);
const listOf = {
    'v1/pods': () =>
        namespace ? core.listNamespacedPod({ namespace, labelSelector }) : core.listPodForAllNamespaces({ labelSelector }),
    'v1/configmaps': () =>
        namespace
            ? core.listNamespacedConfigMap({ namespace, labelSelector })
            : core.listConfigMapForAllNamespaces({ labelSelector }),
}[options.resource];
const plural = options.resource.split('/')[1];
const path = namespace ? `/api/v1/namespaces/${namespace}/${plural}` : `/api/v1/${plural}`;

// The callbacks of a list run before anything else does, those of a watch later.
let initial = false;
const list = async () => {
    const listed = await listOf();
    initial = true;
    setImmediate(() => (initial = false));
    return listed;
};

// The informer hides what it has seen before, so look at what the watch says as well.
class StrictWatch extends k8s.Watch {
    newest = 0n;

    watch(path, query, callback, done) {
        const check = (type, object, event) => {
            const version = BigInt(object.metadata?.resourceVersion ?? 0);
            if (type === 'ERROR') {
                say({ t: 'ERROR', message: JSON.stringify(object) });
            } else if (version <= this.newest) {
                say({ t: 'ERROR', message: `watched ${type} of ${keyOf(object)} at ${version} after ${this.newest}` });
            } else {
                this.newest = version;
            }
            callback(type, object, event);
        };
        return super.watch(path, query, check, done);
    }
}

const items = new Map();
const informer = new k8s.ListWatch(path, new StrictWatch(config), list, false, labelSelector);
const on = (verb, type) =>
    informer.on(verb, (object) => {
        const rv = object.metadata.resourceVersion;
        if (type === 'DELETED') items.delete(keyOf(object));
        else items.set(keyOf(object), rv);
        say({ t: type, key: keyOf(object), uid: object.metadata.uid, rv, initial });
    });
on('add', 'ADDED');
on('update', 'MODIFIED');
on('delete', 'DELETED');
informer.on('error', (error) => {
    say({ t: 'ERROR', message: `${error} ${error?.cause ?? ''}` });
    setTimeout(() => informer.start(), 200);
});
await informer.start();
say({ t: 'SYNCED' });

process.stdin.once('data', () => {
    const state = JSON.stringify({ t: 'STATE', items: Object.fromEntries(items) });
    process.stdout.write(state + '\n', () => process.exit(0));
});
process.stdin.once('end', () => process.exit(1));
