/** The same fields, where `undefined` stands for absent. */
export type Present<Fields> = {
  [Key in keyof Fields as undefined extends Fields[Key] ? never : Key]: Fields[Key];
} & {
  [Key in keyof Fields as undefined extends Fields[Key] ? Key : never]?: Exclude<Fields[Key], undefined>;
};

/** Leaves out what is `undefined`, so that absent is absent and not a key without a value. */
export function present<const Fields extends object>(fields: Fields): Present<Fields> {
  const kept = Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
  return kept as Present<Fields>;
}

/** Empty means absent. */
export function presentText(value: string): string | undefined {
  return value === "" ? undefined : value;
}

/** An empty list means absent. */
export function presentList<Item>(items: readonly Item[]): readonly Item[] | undefined {
  return items.length === 0 ? undefined : [...items];
}

/** An empty map means absent. */
export function presentMap(map: Readonly<Record<string, string>>): Readonly<Record<string, string>> | undefined {
  return Object.keys(map).length === 0 ? undefined : { ...map };
}
