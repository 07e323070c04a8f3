import { watch } from 'informerd';

for await (const event of watch('v1/pods')) {
  if (event.type === 'SYNCED') {
    console.log('SYNCED'); // All existing objects have been returned.
  } else {
    console.log(event.type, `${event.key}`); // event.object is the pod.
  }
}
