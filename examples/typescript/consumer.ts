/**
 * Prints the objects of one selection, and then every change of them.
 *
 *     npm run build && node dist/consumer.js [--namespace N] [--selector L] RESOURCE
 */
import { parseArgs } from 'node:util';

import { InformerdError, watch } from 'informerd';

const { values, positionals } = parseArgs({
  options: {
    namespace: { type: 'string', default: '' },
    selector: { type: 'string', default: '' },
  },
  allowPositionals: true,
});

try {
  for await (const event of watch(positionals[0] ?? '', { namespace: values.namespace, labels: values.selector })) {
    console.log(...(event.type === 'SYNCED' ? [event.type] : [event.type, `${event.key}`, event.key.resourceVersion]));
  }
} catch (error) {
  console.error(error instanceof InformerdError ? error.message : error);
  process.exitCode = 1;
}
