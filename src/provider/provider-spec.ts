import type { Feature } from "../chat/feature.ts";
import type { ChatRequest } from "../chat/request.ts";
import type { DialectId } from "../dialect/dialect.ts";
import type { Quirks } from "../dialect/quirks.ts";

/** A provider is data: where it is, what it speaks, and how it differs from others who speak it. */
export interface ProviderSpec {
  /** The word before the slash in `provider/model`. */
  readonly id: string;
  /** Its name for people. */
  readonly displayName?: string;
  readonly dialect: DialectId;
  /** The vendor's own address; absent where it has to be configured. */
  readonly baseUrl?: string;
  /** Environment variable with the base URL, in the form the vendor's own clients read it. */
  readonly baseUrlEnv?: string;
  /** Environment variable with the key, or with several keys and commas between them. */
  readonly apiKeyEnv?: string;
  /** How the key is sent: as `authorization: Bearer`, the default, or as `x-api-key`. */
  readonly auth?: "bearer" | "x-api-key";
  /** Whether calls without a key make no sense. */
  readonly keyRequired: boolean;
  /** Sent with each request. */
  readonly headers?: Readonly<Record<string, string>>;
  /** Headers that depend on what is asked; names in small letters. */
  readonly headersFor?: (request: ChatRequest) => Readonly<Record<string, string>>;
  /** What differs from the defaults of its dialect. */
  readonly quirks?: Partial<Quirks>;
  /** What its models can be asked for, where nothing else is said of one. */
  readonly features: readonly Feature[];
  /** How some of its models differ from the rest; of several that fit a model later ones win. */
  readonly traits?: readonly ModelTraits[];
}

/** How some models of a provider differ from the rest. */
export interface ModelTraits {
  /** Fits the models' own names, without the provider. */
  readonly models: RegExp;
  readonly lacks?: readonly Feature[];
  readonly adds?: readonly Feature[];
  readonly quirks?: Partial<Quirks>;
}
