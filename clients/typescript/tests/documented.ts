/** What docs/clients.md shows. A test compares. */
import { Cache, Queue, type Handler, type KubernetesObject } from '../src/index.js';

export async function cache(): Promise<void> {
  const pods = new Cache('v1/pods', { namespace: 'default', changed: (event) => console.log(event.type, `${event.key}`) });
  pods.run().catch(console.error);
  await pods.synced;
  const pod = pods.get('default', 'web-1');
  console.log(pod);
}

export async function queue(reconcile: Handler<KubernetesObject>): Promise<void> {
  await new Queue('key-counter', 'v1/configmaps', reconcile, { workers: 4 }).run();
}
