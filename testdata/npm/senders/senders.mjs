// The packages of senders, each behind the same two questions: sign this body as
// your service does, or say whether this request is of your service. One JSON
// object a line comes in, one goes out; {"op":"list"} tells what is here.
import { createHash, createSecretKey } from "node:crypto";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";

import HmacValidator from "@adyen/api-library/lib/src/utils/hmacValidator.js";
import Anthropic from "@anthropic-ai/sdk";
import { verifyWebhook as verifyClerk } from "@clerk/backend/webhooks";
import * as contentful from "@contentful/node-apps-toolkit";
import EasyPost from "@easypost/api";
import { ElevenLabsClient } from "@elevenlabs/elevenlabs-js";
import * as hubspot from "@hubspot/api-client";
import * as hygraph from "@hygraph/utils";
import * as line from "@line/bot-sdk";
import { LinearWebhookClient } from "@linear/sdk/webhooks";
import { WebhookHandler } from "@liveblocks/node";
import Mux from "@mux/mux-node";
import * as notion from "@notionhq/client";
import * as octokit from "@octokit/webhooks-methods";
import { Paddle } from "@paddle/paddle-node-sdk";
import * as polar from "@polar-sh/sdk/webhooks.js";
import * as sanity from "@sanity/webhook";
import { EventWebhook } from "@sendgrid/eventwebhook";
import "@shopify/shopify-api/adapters/node";
import { ApiVersion, shopifyApi } from "@shopify/shopify-api";
import bolt from "@slack/bolt";
import Finch from "@tryfinch/finch-api";
import { Receiver } from "@upstash/qstash";
import { verifySignature as verifyVonage } from "@vonage/jwt";
import { WorkOS } from "@workos-inc/node";
import atlassian from "atlassian-jwt";
import Box from "box-node-sdk";
import { v2 as cloudinary } from "cloudinary";
import coinbase from "coinbase-commerce-node";
import Cronofy from "cronofy";
import { verifyKey } from "discord-interactions";
import DodoPayments from "dodopayments";
import * as gocardless from "gocardless-nodejs/webhooks";
import Lithic from "lithic";
import { AccessToken } from "livekit-server-sdk";
import messagebird from "messagebird/lib/webhook-signature-jwt.js";
import ModernTreasury from "modern-treasury";
import { SignatureValidator as Mollie } from "mollie-api-typescript/utils/webhooks/signature_validator.js";
import OpenAI from "openai";
import plivo from "plivo";
import Pusher from "pusher";
import Razorpay from "razorpay";
import { validateWebhook } from "replicate";
import { Resend } from "resend";
import Retell from "retell-sdk";
import { WebhooksHelper } from "square";
import * as standard from "standardwebhooks";
import Stripe from "stripe";
import * as svix from "svix";
import Telnyx from "telnyx";
import twilio from "twilio";
import { WebflowClient } from "webflow-api";

const seconds = () => Math.floor(Date.now() / 1000);
const sha256 = (text, encoding) => createHash("sha256").update(text).digest(encoding);
const bearer = (r) => r.headers["authorization"].replace(/^\w+ /, "");

// A package that throws when it refuses has accepted when it does not.
const passes = (check) => async (r) => {
  await check(r);
  return true;
};

const threeHeaders = (name, Webhook) => ({
  sign({ secret, body }) {
    const id = "msg_" + sha256(body, "hex").slice(0, 20);
    const signature = new Webhook(secret).sign(id, new Date(), body);
    return { headers: { [name + "-id"]: id, [name + "-timestamp"]: String(seconds()), [name + "-signature"]: signature } };
  },
  verify: passes(({ secret, body, headers }) => new Webhook(secret).verify(body, headers)),
});

const hubspotVersion = (version, header) => {
  const options = ({ secret, body, url, headers }) => ({
    clientSecret: secret, requestBody: body, url, timestamp: Number(headers["x-hubspot-request-timestamp"]),
  });
  return {
    sign(r) {
      const headers = version === "v3" ? { "x-hubspot-request-timestamp": String(Date.now()) } : {};
      headers[header] = hubspot.Signature.getSignature("POST", version, options({ ...r, headers }));
      return { headers };
    },
    verify: (r) => hubspot.Signature.isValid({ method: "POST", signatureVersion: version, signature: r.headers[header], ...options(r) }),
  };
};

const cloudinaryDigest = (algorithm) => ({
  sign({ secret, body }) {
    const at = seconds();
    const signature = cloudinary.utils.webhook_signature(body, at, { api_secret: secret, signature_algorithm: algorithm });
    return { headers: { "x-cld-timestamp": String(at), "x-cld-signature": signature } };
  },
  verify({ secret, body, headers }) {
    cloudinary.config({ api_secret: secret, signature_algorithm: algorithm });
    return cloudinary.utils.verifyNotificationSignature(body, Number(headers["x-cld-timestamp"]), headers["x-cld-signature"]);
  },
});

const adyen = new HmacValidator.default();
const adyenItems = (body) => body.notificationItems.map((entry) => entry.NotificationRequestItem);

const contentfulRequest = ({ url, body, headers }) => ({ method: "POST", path: new URL(url).pathname + new URL(url).search, headers, body });

// Of a row: the package, the scheme, what it can do. `headers` are what the
// sender sends beside its signature and the package insists on. `blind` says
// that the package leaves the body to its caller.
const senders = [
  { package: "@adyen/api-library", scheme: "adyen",
    sign({ secret, body }) {
      const changed = JSON.parse(body);
      for (const item of adyenItems(changed)) item.additionalData = { hmacSignature: adyen.calculateHmac(item, secret) };
      return { headers: {}, body: JSON.stringify(changed) };
    },
    verify: ({ secret, body }) => adyenItems(JSON.parse(body)).every((item) => adyen.validateHMAC(item, secret)) },
  { package: "@adyen/api-library", scheme: "adyen_platform",
    sign: ({ secret, body }) => ({ headers: { hmacsignature: adyen.calculateHmac(body, secret) } }),
    verify: ({ secret, body, headers }) => adyen.validateHMACSignature(secret, headers["hmacsignature"], body) },
  { package: "@anthropic-ai/sdk", scheme: "anthropic",
    verify: passes(({ secret, body, headers }) => new Anthropic({ apiKey: "k" }).beta.webhooks.unwrap(body, { headers, key: secret })) },
  { package: "@clerk/backend", scheme: "clerk",
    verify: passes(({ secret, body, url, headers }) => verifyClerk(new Request(url, { method: "POST", headers, body }), { signingSecret: secret })) },
  { package: "@contentful/node-apps-toolkit", scheme: "contentful",
    sign: (r) => ({ headers: contentful.signRequest(r.secret, contentfulRequest({ ...r, headers: { "content-type": "application/json" } })) }),
    verify: (r) => contentful.verifyRequest(r.secret, contentfulRequest(r)) },
  { package: "@easypost/api", scheme: "easypost",
    verify: passes(({ secret, body, headers }) => new EasyPost("k").Utils.validateWebhook(Buffer.from(body), headers, secret)) },
  { package: "@elevenlabs/elevenlabs-js", scheme: "elevenlabs",
    verify: passes(({ secret, body, headers }) => new ElevenLabsClient({ apiKey: "k" }).webhooks.constructEvent(body, headers["elevenlabs-signature"], secret)) },
  { package: "@hubspot/api-client", scheme: "hubspot_v1", ...hubspotVersion("v1", "x-hubspot-signature") },
  { package: "@hubspot/api-client", scheme: "hubspot_v2", ...hubspotVersion("v2", "x-hubspot-signature") },
  { package: "@hubspot/api-client", scheme: "hubspot_v3", ...hubspotVersion("v3", "x-hubspot-signature-v3") },
  { package: "@hygraph/utils", scheme: "hygraph",
    sign: ({ secret, body }) => ({ headers: { "gcms-signature": hygraph.generateWebhookSignature({ secret, rawPayload: body }) } }),
    verify: ({ secret, body, headers }) => hygraph.verifyWebhookSignature({ secret, rawPayload: body, signature: headers["gcms-signature"] }) },
  { package: "@line/bot-sdk", scheme: "line",
    verify: ({ secret, body, headers }) => line.validateSignature(body, secret, headers["x-line-signature"]) },
  { package: "@linear/sdk", scheme: "linear",
    verify: ({ secret, body, headers }) => new LinearWebhookClient(secret).verify(Buffer.from(body), headers["linear-signature"]) },
  { package: "@liveblocks/node", scheme: "liveblocks",
    verify: passes(({ secret, body, headers }) => new WebhookHandler(secret).verifyRequest({ headers, rawBody: body })) },
  { package: "@mux/mux-node", scheme: "mux",
    verify: passes(({ secret, body, headers }) => new Mux({ tokenId: "t", tokenSecret: "s" }).webhooks.verifySignature(body, headers, secret)) },
  { package: "@notionhq/client", scheme: "notion",
    sign: async ({ secret, body }) => ({ headers: { "x-notion-signature": await notion.signWebhookPayload({ body, verificationToken: secret }) } }),
    verify: ({ secret, body, headers }) => notion.verifyWebhookSignature({ body, signature: headers["x-notion-signature"], verificationToken: secret }) },
  { package: "@octokit/webhooks-methods", scheme: "github",
    sign: async ({ secret, body }) => ({ headers: { "x-hub-signature-256": await octokit.sign(secret, body) } }),
    verify: ({ secret, body, headers }) => octokit.verify(secret, body, headers["x-hub-signature-256"]) },
  { package: "@paddle/paddle-node-sdk", scheme: "paddle",
    verify: ({ secret, body, headers }) => new Paddle("k").webhooks.isSignatureValid(body, secret, headers["paddle-signature"]) },
  { package: "@polar-sh/sdk", scheme: "polar",
    verify({ secret, body, headers }) {
      try {
        polar.validateEvent(body, headers, secret);
      } catch (e) {
        // It reads the event after it has verified it, and knows none of ours.
        if (e.name !== "SDKValidationError") throw e;
      }
      return true;
    } },
  { package: "@sanity/webhook", scheme: "sanity",
    sign: async ({ secret, body }) => ({ headers: { [sanity.SIGNATURE_HEADER_NAME]: await sanity.encodeSignatureHeader(body, Date.now(), secret) } }),
    verify: ({ secret, body, headers }) => sanity.isValidSignature(body, headers[sanity.SIGNATURE_HEADER_NAME], secret) },
  { package: "@sendgrid/eventwebhook", scheme: "sendgrid",
    verify({ secret, body, headers }) {
      const events = new EventWebhook();
      const [signature, at] = ["signature", "timestamp"].map((part) => headers["x-twilio-email-event-webhook-" + part]);
      return events.verifySignature(events.convertPublicKeyToECDSA(secret), body, signature, at);
    } },
  { package: "@shopify/shopify-api", scheme: "shopify",
    headers: { "X-Shopify-Topic": "orders/create", "X-Shopify-Shop-Domain": "shop.example.com", "X-Shopify-Api-Version": "2026-01" },
    async verify({ secret, body, headers }) {
      const shopify = shopifyApi({ apiKey: "k", apiSecretKey: secret, hostName: "app.example.com", apiVersion: Object.values(ApiVersion).at(-1), isEmbeddedApp: false });
      return (await shopify.webhooks.validate({ rawBody: body, rawRequest: { method: "POST", url: "/", headers }, rawResponse: {} })).valid;
    } },
  { package: "@slack/bolt", scheme: "slack",
    verify: passes(({ secret, body, headers }) =>
      bolt.verifySlackRequest({ signingSecret: secret, body, headers: { ...headers, "x-slack-request-timestamp": Number(headers["x-slack-request-timestamp"]) } })) },
  { package: "@tryfinch/finch-api", scheme: "finch",
    verify: passes(({ secret, body, headers }) => new Finch({ accessToken: "k" }).webhooks.verifySignature(body, headers, secret)) },
  { package: "@upstash/qstash", scheme: "qstash",
    verify: ({ secret, body, url, headers }) =>
      new Receiver({ currentSigningKey: secret, nextSigningKey: secret }).verify({ body, url, signature: headers["upstash-signature"] }) },
  { package: "@vonage/jwt", scheme: "vonage", blind: true,
    verify: (r) => verifyVonage(bearer(r), r.secret) },
  { package: "@workos-inc/node", scheme: "workos",
    async sign({ secret, body }) {
      const at = Date.now();
      return { headers: { "workos-signature": `t=${at}, v1=${await new WorkOS("k").webhooks.computeSignature(at, JSON.parse(body), secret)}` } };
    },
    verify: ({ secret, body, headers }) => new WorkOS("k").webhooks.verifyHeader({ payload: JSON.parse(body), sigHeader: headers["workos-signature"], secret }) },
  { package: "atlassian-jwt", scheme: "jira_connect", blind: true,
    sign({ secret, url }) {
      const { pathname, search } = new URL(url);
      const qsh = atlassian.createQueryStringHash(atlassian.fromMethodAndUrl("POST", pathname + search));
      const token = atlassian.encodeSymmetric({ iss: "client", iat: seconds(), exp: seconds() + 180, qsh }, secret);
      return { headers: { authorization: "JWT " + token } };
    },
    verify(r) {
      const { pathname, search } = new URL(r.url);
      const claims = atlassian.decodeSymmetric(bearer(r), r.secret, atlassian.SymmetricAlgorithm.HS256);
      return claims.qsh === atlassian.createQueryStringHash(atlassian.fromMethodAndUrl("POST", pathname + search));
    } },
  { package: "box-node-sdk", scheme: "box", headers: { "Box-Signature-Version": "1", "Box-Signature-Algorithm": "HmacSHA256" },
    verify: ({ secret, body, headers }) => Box.validateWebhookMessage(body, headers, secret) },
  { package: "cloudinary", scheme: "cloudinary", ...cloudinaryDigest("sha1") },
  { package: "cloudinary", scheme: "cloudinary_sha256", ...cloudinaryDigest("sha256") },
  { package: "coinbase-commerce-node", scheme: "coinbase_commerce",
    sign: ({ secret, body }) => ({ headers: { "x-cc-webhook-signature": coinbase.Webhook.computeSignature(body, secret) } }),
    verify: ({ secret, body, headers }) => coinbase.Webhook.verifySigHeader(body, headers["x-cc-webhook-signature"], secret) },
  { package: "cronofy", scheme: "cronofy",
    verify: ({ secret, body, headers }) => new Cronofy({ client_secret: secret }).hmacValid({ hmac: headers["cronofy-hmac-sha256"], body, client_secret: secret }) },
  { package: "discord-interactions", scheme: "discord",
    verify: ({ secret, body, headers }) => verifyKey(body, headers["x-signature-ed25519"], headers["x-signature-timestamp"], secret) },
  { package: "dodopayments", scheme: "dodopayments",
    verify: passes(({ secret, body, headers }) => new DodoPayments({ bearerToken: "k" }).webhooks.unwrap(body, { headers, key: secret })) },
  { package: "gocardless-nodejs", scheme: "gocardless",
    verify: passes(({ secret, body, headers }) => gocardless.parse(body, secret, headers["webhook-signature"])) },
  { package: "lithic", scheme: "lithic",
    verify: passes(({ secret, body, headers }) => new Lithic({ apiKey: "k" }).webhooks.verifySignature(body, headers, secret)) },
  { package: "livekit-server-sdk", scheme: "livekit",
    async sign({ secret, body }) {
      const token = new AccessToken("key", secret, { ttl: "5m" });
      token.sha256 = sha256(body, "base64");
      return { headers: { authorization: await token.toJwt() } };
    } },
  { package: "messagebird", scheme: "messagebird",
    verify: passes(({ secret, body, url, headers }) =>
      messagebird.verify(url, Buffer.from(body), headers["messagebird-signature-jwt"], createSecretKey(Buffer.from(secret)))) },
  { package: "modern-treasury", scheme: "modern_treasury",
    sign: ({ secret, body }) => ({ headers: { "x-signature": new ModernTreasury({ organizationID: "o", apiKey: "k" }).webhooks.getSignature(body, { key: secret }) } }),
    verify: ({ secret, body, headers }) => new ModernTreasury({ organizationID: "o", apiKey: "k" }).webhooks.validateSignature(body, headers["x-signature"], { key: secret }) },
  { package: "mollie-api-typescript", scheme: "mollie",
    verify: ({ secret, body, headers }) => Mollie.validate(body, secret, headers["x-mollie-signature"]) },
  { package: "openai", scheme: "openai",
    verify: passes(({ secret, body, headers }) => new OpenAI({ apiKey: "k" }).webhooks.verifySignature(body, headers, secret)) },
  { package: "plivo", scheme: "plivo_v2", blind: true, headers: { "X-Plivo-Signature-V2-Nonce": "12345678901234567890" },
    verify: ({ secret, url, headers }) => plivo.validateSignature(url, headers["x-plivo-signature-v2-nonce"], headers["x-plivo-signature-v2"], secret) },
  { package: "plivo", scheme: "plivo_v3", blind: true, headers: { "X-Plivo-Signature-V3-Nonce": "12345678901234567890" },
    verify: ({ secret, url, headers }) => plivo.validateV3Signature("POST", url, headers["x-plivo-signature-v3-nonce"], secret, headers["x-plivo-signature-v3"]) },
  { package: "pusher", scheme: "pusher", headers: { "X-Pusher-Key": "key" },
    verify: ({ secret, body, headers }) => new Pusher({ appId: "1", key: "key", secret, cluster: "eu" }).webhook({ headers, rawBody: body }).isValid() },
  { package: "razorpay", scheme: "razorpay",
    verify: ({ secret, body, headers }) => Razorpay.validateWebhookSignature(body, headers["x-razorpay-signature"], secret) },
  { package: "replicate", scheme: "replicate",
    verify: ({ secret, body, headers }) => validateWebhook({ headers, body }, secret) },
  { package: "resend", scheme: "resend",
    verify: passes(({ secret, body, headers }) => new Resend("k").webhooks.verify({
      payload: body, webhookSecret: secret,
      headers: { id: headers["svix-id"], timestamp: headers["svix-timestamp"], signature: headers["svix-signature"] },
    })) },
  { package: "retell-sdk", scheme: "retell",
    sign: async ({ secret, body }) => ({ headers: { "x-retell-signature": await Retell.sign(body, secret) } }),
    verify: ({ secret, body, headers }) => Retell.verify(body, secret, headers["x-retell-signature"]) },
  { package: "square", scheme: "square",
    verify: ({ secret, body, url, headers }) => WebhooksHelper.verifySignature({
      requestBody: body, signatureHeader: headers["x-square-hmacsha256-signature"], signatureKey: secret, notificationUrl: url,
    }) },
  { package: "standardwebhooks", scheme: "standard_webhooks", ...threeHeaders("webhook", standard.Webhook) },
  { package: "stripe", scheme: "stripe",
    sign: ({ secret, body }) => ({ headers: { "stripe-signature": Stripe.webhooks.generateTestHeaderString({ payload: body, secret }) } }),
    verify: passes(({ secret, body, headers }) => Stripe.webhooks.constructEvent(body, headers["stripe-signature"], secret)) },
  { package: "svix", scheme: "svix", ...threeHeaders("svix", svix.Webhook) },
  { package: "telnyx", scheme: "telnyx",
    verify: passes(({ secret, body, headers }) => new Telnyx({ apiKey: "k", publicKey: secret }).webhooks.unwrap(body, { headers })) },
  { package: "twilio", scheme: "twilio_json",
    sign({ secret, body, url }) {
      url += "?bodySHA256=" + sha256(body, "hex");
      return { url, headers: { "x-twilio-signature": twilio.getExpectedTwilioSignature(secret, url, {}) } };
    },
    verify: ({ secret, body, url, headers }) => twilio.validateRequestWithBody(secret, headers["x-twilio-signature"], url, body) },
  { package: "webflow-api", scheme: "webflow",
    verify: ({ secret, body, headers }) => new WebflowClient({ accessToken: "k" }).webhooks.verifySignature({ headers, body, secret }) },
];

const versions = JSON.parse(readFileSync(new URL("package.json", import.meta.url))).dependencies;

async function answer(question) {
  if (question.op === "list") {
    return senders.map((s) => ({
      package: s.package, version: versions[s.package], scheme: s.scheme, signs: !!s.sign, verifies: !!s.verify, blind: !!s.blind, headers: s.headers ?? {},
    }));
  }
  const sender = senders.find((s) => s.package === question.package && s.scheme === question.scheme);
  if (question.op === "sign") {
    return { url: question.url, body: question.body, ...(await sender.sign(question)) };
  }
  try {
    return { verified: (await sender.verify(question)) === true };
  } catch (e) {
    return { verified: false, error: String(e?.message ?? e) };
  }
}

// What a package prints must not be taken for an answer.
const out = process.stdout.write.bind(process.stdout);
process.stdout.write = process.stderr.write.bind(process.stderr);
for await (const text of createInterface({ input: process.stdin })) {
  try {
    out(JSON.stringify(await answer(JSON.parse(text))) + "\n");
  } catch (e) {
    out(JSON.stringify({ error: String(e?.stack ?? e) }) + "\n");
  }
}
