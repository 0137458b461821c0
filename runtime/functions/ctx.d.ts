// The types of functions on Baobab: `export default async (req: Request, ctx: Ctx): Promise<Response> => ...`.
// `baobab functions types` writes this file, and the tables of your app after it.

/** What a function gets beside its request. */
interface Ctx {
  /** The user for whom the function runs; null if it runs for nobody, with the app's own right. */
  readonly user: { readonly id: string } | null;
  readonly caller: {
    readonly type: "end_user_jwt" | "service_key" | "anonymous" | "loopback";
    readonly keyId: string | null;
    readonly scope: string | null;
    readonly userId: string | null;
  };
  readonly app: CtxApp;
  /** This call. The id stays the same when a stored webhook is run again. */
  readonly request: {
    readonly id: string;
    readonly ip: string | null;
    readonly country: string | null;
    readonly functionName: string;
  };
  /** Variables: the app's, then the function's own, then those of the platform. */
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly db: CtxDatabase & {
    /** Does what `work` says as this user, under the app's policies. */
    asUser<T>(id: string, work: (db: CtxDatabase) => T | Promise<T>): Promise<T>;
    /** Does what `work` says as a visitor who has not signed in. */
    asAnon<T>(work: (db: CtxDatabase) => T | Promise<T>): Promise<T>;
  };
  readonly kv: CtxKv;
  readonly storage: CtxStorage;
  readonly ai: {
    /** As `POST /v1/APP/chat/completions`, without `stream`. */
    chat(body: CtxBody): Promise<any>;
    embeddings(body: CtxBody): Promise<any>;
    images(body: CtxBody): Promise<any>;
    readonly meetings: CtxMeetings;
  };
  readonly integrations: CtxIntegrations & { asUser(id: string): CtxIntegrations };
  /** null unless the app is linked to the substrate of its own organisation. */
  readonly substrate: CtxSubstrate | null;
  readonly idempotency: {
    /** True for the first caller with this key, false for all others until it expires; without `ttlSeconds`, for ever. */
    claim(key: string, options?: { scope?: string; ttlSeconds?: number }): Promise<boolean>;
  };
  /** Goes on for up to 30 seconds after the answer. */
  waitUntil(promise: Promise<unknown>): void;
  /** Calls another function of the app as the same user, four deep at most. */
  invoke(name: string, body?: unknown, options?: { method?: string; headers?: HeadersInit }): Promise<Response>;
  /** Does `work` once for this call. If the call is made again, it gets what `work` returned, which has to be JSON. */
  step<T>(name: string, work: () => T | Promise<T>): Promise<T>;
}

/** What a refused member throws. */
interface CtxError extends Error {
  readonly code: string;
  readonly remediation: string;
}

interface CtxApp {
  readonly id: string;
  readonly name: string;
  readonly ownerId: string | null;
  readonly region: string;
  readonly subdomain: string | null;
  readonly anonKey: string | null;
  readonly allowedOrigins: readonly string[];
  readonly substrateOrganizationId: string | null;
  readonly frontend: null;
  readonly auth: {
    readonly accessTokenTtl: string;
    readonly refreshTokenTtlDays: number;
    readonly hookFunction: string | null;
  };
  readonly ai: { readonly defaultModel: string } | null;
  readonly billing: null;
}

/** A body of the REST API, whose fields the guides describe. */
type CtxBody = Readonly<Record<string, unknown>>;

interface CtxDatabase {
  /** Runs one statement, with `$1` and so on for the parameters. `Row` is believed, not checked: see `Tables`. */
  query<Row = Record<string, unknown>>(sql: string, params?: readonly unknown[]): Promise<{ rows: Row[]; rowCount: number }>;
}

/** `ttl` is in seconds; left out, the app's default; null keeps the value for ever. */
interface CtxKvOptions {
  ttl?: number | null;
  ephemeral?: boolean;
}

interface CtxKv {
  /** null if there is no such key. */
  get<T = unknown>(key: string, options?: { touch?: boolean }): Promise<T | null>;
  set(key: string, value: unknown, options?: CtxKvOptions): Promise<true>;
  /** Whether the key was there. */
  del(key: string): Promise<boolean>;
  incr(key: string, by?: number | { by?: number; ttl?: number }, options?: { ttl?: number }): Promise<number>;
  decr(key: string, by?: number | { by?: number; ttl?: number }, options?: { ttl?: number }): Promise<number>;
  /** Writes unless the key is there, and says whether it did. */
  setnx(key: string, value: unknown, options?: CtxKvOptions): Promise<boolean>;
  setex(key: string, seconds: number, value: unknown): Promise<true>;
  /** Writes if the value is still `expected`, and says whether it did. */
  cas(key: string, expected: unknown, next: unknown): Promise<boolean>;
  exists(key: string): Promise<boolean>;
  ttl(key: string): Promise<number | null>;
  expire(key: string, seconds: number): Promise<boolean>;
  mget(keys: readonly string[]): Promise<unknown[]>;
  mset(values: Readonly<Record<string, unknown>>, options?: CtxKvOptions): Promise<true>;
  expose(pattern: string, levels?: { read?: string; write?: string }): Promise<true>;
  unexpose(pattern: string): Promise<boolean>;
  listRules(): Promise<any[]>;
}

interface CtxFile {
  readonly id: string;
  readonly user_id: string | null;
  readonly key: string;
  readonly filename: string;
  readonly content_type: string;
  readonly size_bytes: number;
  readonly public: boolean;
  readonly created_at: string;
  readonly metadata: Readonly<Record<string, string>>;
  readonly published_url: string | null;
}

/** The files of the user for whom the function runs, else all of the app. */
interface CtxStorage {
  getUploadUrl(
    file: { filename: string; contentType: string; sizeBytes: number; public?: boolean },
  ): Promise<{ uploadUrl: string; objectKey: string; objectId: string; expiresIn: number }>;
  getUploadUrl(
    filename: string,
    contentType: string,
    sizeBytes: number,
    options?: { public?: boolean },
  ): Promise<{ uploadUrl: string; objectKey: string; objectId: string; expiresIn: number }>;
  getDownloadUrl(id: string): Promise<{ downloadUrl: string; filename: string; expiresIn: number; thumbnailUrl: string | null }>;
  put(
    filename: string,
    content: string | Uint8Array | ArrayBuffer | Blob,
    options?: { contentType?: string; public?: boolean },
  ): Promise<CtxFile>;
  /** The bytes of a file of up to 5 MB; null if there is none. */
  get(id: string): Promise<Uint8Array | null>;
  list(options?: {
    limit?: number;
    cursor?: string;
    prefix?: string;
    name?: string;
    sort?: "created" | "name" | "size";
    order?: "asc" | "desc";
  }): Promise<CtxFile[]>;
  delete(id: string): Promise<unknown>;
}

interface CtxMeetings {
  start(body: CtxBody): Promise<any>;
  get(id: string): Promise<any>;
  list(query?: CtxBody): Promise<any>;
  stop(id: string): Promise<any>;
  estimate(body: CtxBody): Promise<any>;
  getTranscript(id: string): Promise<any>;
  usage(query?: CtxBody): Promise<any>;
}

interface CtxIntegrations {
  /** Calls a tool with the account of the user at the other service. */
  execute(tool: string, params?: CtxBody): Promise<any>;
}

interface CtxSubstrate {
  propose(capability: string, payload?: CtxBody, options?: { idempotency_key?: string }): Promise<any>;
  getEntity(id: string, query?: CtxBody): Promise<any>;
  findEntities(query?: CtxBody): Promise<any>;
  searchMemory(q: string | CtxBody, query?: CtxBody): Promise<any>;
  listMemory(query?: CtxBody): Promise<any>;
  listSourceArtifacts(query?: CtxBody): Promise<any>;
  getSourceArtifact(id: string, query?: CtxBody): Promise<any>;
  listActions(query?: CtxBody): Promise<any>;
  getAction(id: string, query?: CtxBody): Promise<any>;
  upsertEntity(payload: CtxBody, options?: { idempotency_key?: string }): Promise<any>;
  patchEntity(id: string, changes: CtxBody): Promise<any>;
  deleteEntity(payload: CtxBody, options?: { idempotency_key?: string }): Promise<any>;
  mergeEntities(payload: CtxBody, options?: { idempotency_key?: string }): Promise<any>;
  wsTicket(body?: CtxBody): Promise<any>;
}
