/** Environment variables that hold a secret, by what their names end in. */
const secretName = /(?:^|_)(?:API_?KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|DATABASE_URL)$/i;
/** Anything shorter occurs in texts by chance. */
const leastLength = 4;

/** What was in the environment, and what must not be seen of it. */
export interface TakenEnvironment {
  /** All variables, secrets included, for the code that needs them. */
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly redactor: Redactor;
}

/**
 * Copies the environment and removes the secrets from the original, so that neither programs we start nor a dump of this
 * process's environment has them.
 */
export function takeSecrets(environment: NodeJS.ProcessEnv): TakenEnvironment {
  const env = { ...environment };
  const redactor = new Redactor();
  for (const [name, value = ""] of Object.entries(env)) {
    const password = URL.parse(value)?.password ?? "";
    if (password !== "") redactor.hide(decoded(password)).hide(password);
    if (secretName.test(name)) redactor.hide(value);
    if (password !== "" || secretName.test(name)) delete environment[name];
  }
  return { env, redactor };
}

/** Hides the passwords of databases' URLs, and the URLs with them. */
export function hideDatabases(urls: readonly string[], redactor: Redactor): void {
  for (const url of urls) {
    const password = URL.parse(url)?.password ?? "";
    if (password !== "") redactor.hide(url).hide(decoded(password)).hide(password);
  }
}

/** Replaces secrets in texts, as they are, in JSON and in URLs. */
export class Redactor {
  /** The longest first, so that none leaves the end of another behind. */
  #forms: readonly string[] = [];

  hide(secret: string): this {
    const plain = secret.trim();
    if (plain.length < leastLength) return this;
    const inJson = JSON.stringify(plain).slice(1, -1);
    const forms = new Set([...this.#forms, plain, inJson, encodeURIComponent(plain.toWellFormed())]);
    this.#forms = [...forms].sort((left, right) => right.length - left.length);
    return this;
  }

  redact(text: string): string {
    let safe = text;
    for (const form of this.#forms) safe = safe.replaceAll(form, "[hidden]");
    return safe;
  }
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
