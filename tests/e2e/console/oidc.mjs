// A real OpenID provider (oidc-provider), which answers as each of the built-in providers does where they differ from it.
//
// `node oidc.mjs PORT` serves it on loopback. Clients register themselves (`POST /reg`), with `shape`: whose answers they get.
import { createHash, createPublicKey, verify } from "node:crypto";
import { Provider } from "oidc-provider";

const port = Number(process.argv[2]);
const issuer = `http://127.0.0.1:${port}`;

// Everybody who types a name signs in. Who is called `unsure` has an address that nobody has verified.
const describe = (id) => ({
  sub: id,
  name: `${id[0].toUpperCase()}${id.slice(1)} Lovelace`,
  email: `${id}@example.com`,
  email_verified: id !== "unsure",
  picture: `https://cdn.example.com/${id}.png`,
});
const number = (id) => Number.parseInt(createHash("sha256").update(id).digest("hex").slice(0, 8), 16);

// What each provider's documentation shows as the answer about a user.
const profiles = {
  github: (user) => ({
    login: user.sub, id: number(user.sub), node_id: "MDQ6VXNlcjE=", avatar_url: user.picture, gravatar_id: "",
    type: "User", site_admin: false, name: user.name, company: null, email: "typed@example.com", two_factor_authentication: true,
  }),
  "github/emails": (user) => [
    { email: "old@example.com", verified: true, primary: false, visibility: null },
    { email: user.email, verified: user.email_verified, primary: true, visibility: "private" },
  ],
  discord: (user) => ({
    id: String(number(user.sub)), username: user.sub, discriminator: "0", global_name: user.name, avatar: null, flags: 0,
    verified: user.email_verified, email: user.email, mfa_enabled: false,
  }),
  facebook: (user) => ({
    id: String(number(user.sub)), name: user.name, email: user.email,
    picture: { data: { height: 50, is_silhouette: false, url: user.picture, width: 50 } },
  }),
  microsoft: (user) => ({
    "@odata.context": "https://graph.microsoft.com/v1.0/$metadata#users/$entity", businessPhones: [], displayName: user.name,
    givenName: user.name, jobTitle: null, mail: user.email, mobilePhone: null, userPrincipalName: user.email, id: user.sub,
  }),
  x: (user) => ({ data: { id: String(number(user.sub)), name: user.name, username: user.sub, profile_image_url: user.picture } }),
};

const provider = new Provider(issuer, {
  clientDefaults: { grant_types: ["authorization_code"], response_types: ["code"] },
  claims: { openid: ["sub"], email: ["email", "email_verified"], profile: ["name", "picture"] },
  // ID tokens say who the user is, as those of Google, Apple and LinkedIn do.
  conformIdTokenClaims: false,
  scopes: ["openid", "user:email", "identify", "public_profile", "User.Read", "tweet.read", "users.read"],
  // All but LinkedIn take a code challenge: here it is wanted of them.
  pkce: { required: (_, client) => client.shape !== "linkedin" },
  features: { registration: { enabled: true } },
  extraClientMetadata: { properties: ["shape", "public_key"] },
  findAccount: (_, id) => ({ accountId: id, claims: () => describe(id) }),
});

const named = new Set(); // whose name Apple has told already
const readBody = async (request) => {
  let text = "";
  for await (const piece of request) text += piece;
  return Object.fromEntries(new URLSearchParams(text));
};
const decode = (part) => JSON.parse(Buffer.from(part, "base64url"));

// Apple's secret is a token that the developer's key has signed, minutes ago.
const checkSecret = (client, secret) => {
  const [header, claims, signature] = secret.split(".");
  const key = { key: createPublicKey(client.public_key), dsaEncoding: "ieee-p1363" };
  const signed = verify("sha256", Buffer.from(`${header}.${claims}`), key, Buffer.from(signature, "base64url"));
  const { iss, aud, sub, iat, exp } = decode(claims);
  const now = Date.now() / 1000;
  const said = iss === "TEAM" && aud === issuer && sub === client.clientId && iat <= now + 5 && now < exp && exp - iat < 15777000;
  return signed && said && decode(header).alg === "ES256" && decode(header).kid === "KEY";
};

provider.use(async (ctx, next) => {
  const asked = ctx.path.match(/^\/profile\/([a-z/]+)$/);
  if (asked) {
    const token = await provider.AccessToken.find((ctx.get("authorization").match(/^Bearer (.+)$/) ?? [])[1] ?? "-");
    const shape = asked[1].split("/")[0];
    const client = token && (await provider.Client.find(token.clientId));
    if (client?.shape !== shape) ctx.status = 401;
    else ctx.body = profiles[asked[1]](describe(token.accountId));
    return;
  }
  const query = ctx.path === "/auth" ? new URLSearchParams(ctx.querystring) : null;
  if (query?.get("scope") === "name email") {
    // Apple's names of what it tells in any case. It wants a form where it tells a name.
    if (query.get("response_mode") !== "form_post") ctx.throw(400, "form_post is wanted");
    query.set("scope", "openid email");
    ctx.querystring = query.toString();
  }
  if (ctx.path === "/token") {
    ctx.req.body = await readBody(ctx.req);
    const client = ctx.req.body.client_id && (await provider.Client.find(ctx.req.body.client_id));
    if (client?.shape === "apple") {
      ctx.req.body.client_secret = checkSecret(client, ctx.req.body.client_secret ?? "") ? client.clientSecret : "wrong";
    }
  }
  await next();
  const { client, session } = ctx.oidc ?? {};
  if (client?.shape === "apple" && typeof ctx.body === "string" && ctx.body.includes('name="code"')) {
    // The name comes with the form, and the first time only.
    const { accountId } = session;
    if (!named.has(accountId)) {
      const name = JSON.stringify({ name: { firstName: "Ada", lastName: "King" } }).replaceAll('"', "&quot;");
      ctx.body = ctx.body.replace("<noscript>", `<input type="hidden" name="user" value="${name}"/>\n<noscript>`);
    }
    named.add(accountId);
  }
});

provider.listen(port, "127.0.0.1");
