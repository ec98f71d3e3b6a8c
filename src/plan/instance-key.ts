/** Names one run of a step: within `for_each` steps it runs once for each item. */
export interface StepPlace {
  readonly stepId: string;
  /** The index of each item, from 0, outermost first. */
  readonly itemPath: readonly number[];
}

const compensationPrefix = "undo:";

/** A step as events of the log name it, for example `build[0,2]`. */
export function instanceKey({ stepId, itemPath }: StepPlace): string {
  return itemPath.length === 0 ? stepId : `${stepId}[${itemPath.join(",")}]`;
}

/** A step's compensation as events of the log name it. */
export function compensationKey(place: StepPlace): string {
  return compensationPrefix + instanceKey(place);
}

/** Reads a key; undefined for what is none. */
export function placeOf(key: string): (StepPlace & { readonly isCompensation: boolean }) | undefined {
  const found = /^(undo:)?([\w-]+)(?:\[(\d+(?:,\d+)*)\])?$/.exec(key);
  const [, prefix, stepId, items] = found ?? [];
  if (stepId === undefined) return undefined;
  return {
    stepId,
    itemPath: items === undefined ? [] : items.split(",").map(Number),
    isCompensation: prefix !== undefined,
  };
}
