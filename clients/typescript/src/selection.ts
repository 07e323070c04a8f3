import { create } from '@bufbuild/protobuf';

import { Drop, SelectionSchema, Shape, type Selection } from './v1.js';

/** What narrows a selection. */
export interface Selected {
  namespace?: string;
  names?: readonly string[];
  /** A label selector. */
  labels?: string;
  /** A field selector. */
  fields?: string;
  /** Objects without spec and status. */
  metadataOnly?: boolean;
  /** Leaves out metadata.managedFields. Such an object must not be written back with an update. */
  withoutManagedFields?: boolean;
}

/**
 * Reads a resource: GROUP/VERSION/RESOURCE without GROUP/ for the core group, or RESOURCE.GROUP as in kubectl for the
 * version that the cluster prefers.
 */
function resourceOf(text: string): { group: string; version: string; resource: string } {
  const found =
    /^(?:(?<group>[^/]+)\/)?(?<version>[^/]+)\/(?<resource>[^/.]+)$/.exec(text) ??
    /^(?<resource>[^/.]+)(?:\.(?<group>[^/]+))?$/.exec(text);
  if (!found) {
    throw new TypeError(`${JSON.stringify(text)} is no resource: want one such as v1/pods, apps/v1/deployments or deployments.apps`);
  }
  const { group = '', version = '', resource = '' } = found.groups ?? {};
  return { group, version, resource };
}

export function selectionOf(resource: string, selected: Selected): Selection {
  return create(SelectionSchema, {
    resource: resourceOf(resource),
    filters: [
      {
        namespace: selected.namespace ?? '',
        names: [...(selected.names ?? [])],
        labelSelector: selected.labels ?? '',
        fieldSelector: selected.fields ?? '',
      },
    ],
    shape: selected.metadataOnly ? Shape.METADATA_ONLY : Shape.UNSPECIFIED,
    drop: selected.withoutManagedFields ? [Drop.MANAGED_FIELDS] : [],
  });
}
