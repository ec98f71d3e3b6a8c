import type { DialectId } from "../dialect/dialect.ts";
import type { Quirks } from "../dialect/quirks.ts";

/** A provider is data: where it is, what it speaks, and how it differs from others who speak it. */
export interface ProviderSpec {
  /** The word before the slash in `provider/model`. */
  readonly id: string;
  readonly dialect: DialectId;
  /** The vendor's own address; absent where it has to be configured. */
  readonly baseUrl?: string;
  /** Environment variable with the base URL, in the form the vendor's own clients read it. */
  readonly baseUrlEnv?: string;
  readonly apiKeyEnv?: string;
  /** How the key is sent: as `authorization: Bearer`, the default, or as `x-api-key`. */
  readonly auth?: "bearer" | "x-api-key";
  /** Whether calls without a key make no sense. */
  readonly keyRequired: boolean;
  /** Sent with each request. */
  readonly headers?: Readonly<Record<string, string>>;
  /** What differs from the defaults of its dialect. */
  readonly quirks?: Partial<Quirks>;
  /** What its models can be asked for, as words for clients. */
  readonly features: readonly string[];
}
