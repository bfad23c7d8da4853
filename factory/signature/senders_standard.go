package signature

import "time"

var (
	standardForm = Form{Signature: "Webhook-Signature", Timestamp: "Webhook-Timestamp", ID: "Webhook-Id"}
	svixForm     = Form{Signature: "Svix-Signature", Timestamp: "Svix-Timestamp", ID: "Svix-Id"}
)

// standard completes the row of a sender of Standard Webhooks, which states only its
// differences from the standard.
func standard(s Scheme) *Scheme {
	if s.Key == "" {
		s.Key, s.KeyPrefixes = KeyBase64, []string{"v1,whsec_", "whsec_"}
	}
	if s.Forms == nil {
		s.Forms = []Form{standardForm}
	}
	if s.Parse.Separator == "" {
		s.Parse = Parse{Separator: " ", Prefix: "v1,"}
	}
	s.Encoding, s.Template, s.Tolerance = Base64, "{id}.{ts}.{body}", 5*time.Minute
	return &s
}

// standardRows are the senders of Standard Webhooks, Svix among them.
var standardRows = []*Scheme{
	standard(Scheme{
		Name: "standard_webhooks", Provider: "Standard Webhooks", Source: "https://www.standardwebhooks.com",
		Setup: "In the sender's webhook settings add the URL as an endpoint; the signing secret shown there begins with whsec_. For a sender that takes yours, make one: `echo \"whsec_$(head -c 32 /dev/urandom | base64)\"`.",
		Note:  "For every sender of this standard that has no name of its own here.",
		Proof: Published, Forms: []Form{standardForm, svixForm},
	}),
	standard(Scheme{
		Name: "svix", Provider: "Svix", Source: "https://docs.svix.com/receiving/verifying-payloads/how-manual",
		Setup: "In the sender's webhook portal: Add Endpoint with the URL; the endpoint's page shows the Signing Secret (whsec_…).",
		Note:  "For every sender that uses Svix and has no name of its own here.",
		Proof: Published, Forms: []Form{svixForm, standardForm},
	}),
	standard(Scheme{
		Name: "gitlab_signed", Provider: "GitLab", Source: "https://docs.gitlab.com/user/project/integrations/webhooks/",
		Setup: "Settings → Webhooks → Add new webhook: the URL, and a signing token, which is the secret. For versions that sign; older ones only send the token of `gitlab`.",
		Note:  "Refuses requests that carry X-Gitlab-Token alone.",
		Proof: Package,
	}),
	standard(Scheme{
		Name: "openai", Provider: "OpenAI", Source: "https://platform.openai.com/docs/guides/webhooks",
		Setup: "Dashboard → Settings → Webhooks → Create: the URL and the events. The signing secret (whsec_…) is shown once.",
		Proof: Published,
	}),
	standard(Scheme{
		Name: "anthropic", Provider: "Anthropic", Source: "https://docs.claude.com/en/api/overview",
		Setup: "Console → Webhooks: add the URL; the signing secret (whsec_…) is shown with it.",
		Proof: Package,
	}),
	standard(Scheme{
		Name: "replicate", Provider: "Replicate", Source: "https://replicate.com/docs/topics/webhooks/verify-webhook",
		Setup: "Give the URL as `webhook` when a prediction is created. The secret (whsec_…) comes from `GET https://api.replicate.com/v1/webhooks/default/secret`.",
		Proof: Package,
	}),
	standard(Scheme{
		Name: "lithic", Provider: "Lithic", Source: "https://docs.lithic.com/docs/webhooks",
		Setup: "Create an event subscription with the URL, in the dashboard or by `POST /v1/event_subscriptions`; its secret (whsec_…) is shown there.",
		Proof: Package,
	}),
	standard(Scheme{
		Name: "dodopayments", Provider: "Dodo Payments", Source: "https://docs.dodopayments.com/developer-resources/webhooks",
		Setup: "Dashboard → Developer → Webhooks → Add Endpoint; the endpoint shows its secret key.",
		Proof: Package,
	}),
	standard(Scheme{
		Name: "liveblocks", Provider: "Liveblocks", Source: "https://liveblocks.io/docs/platform/webhooks",
		Setup: "Dashboard → project → Webhooks → Create endpoint; the signing secret (whsec_…) is on its page.",
		Proof: Package,
	}),
	standard(Scheme{
		Name: "resend", Provider: "Resend", Source: "https://resend.com/docs/dashboard/webhooks/verify-webhooks-requests",
		Setup: "Webhooks → Add Webhook: the URL and the events; the signing secret (whsec_…) is on its page.",
		Proof: Package, Forms: []Form{svixForm, standardForm},
	}),
	standard(Scheme{
		Name: "clerk", Provider: "Clerk", Source: "https://clerk.com/docs/webhooks/overview",
		Setup: "Dashboard → Configure → Webhooks → Add Endpoint; the signing secret (whsec_…) is on its page.",
		Proof: Package, Forms: []Form{svixForm, standardForm},
	}),
	standard(Scheme{
		Name: "supabase_auth_hook", Provider: "Supabase Auth", Source: "https://supabase.com/docs/guides/auth/auth-hooks",
		Setup: "Authentication → Hooks → Add a hook of type HTTPS: the URL; generate the secret (v1,whsec_…) there.",
		Note:  "The hooks of Supabase Auth wait for an answer with content; this server answers 202 with a delivery's id. Fit for hooks that only notify.",
		Parse: Parse{Separator: " ", Prefix: "v1,", Trim: ","},
	}),
	standard(Scheme{
		Name: "polar", Provider: "Polar", Source: "https://polar.sh/docs/integrate/webhooks/delivery",
		Setup: "Settings → Webhooks → Add Endpoint: the URL, format Raw; set or generate the secret.",
		Note:  "The whole secret is the key as it is, not base64.",
		Proof: Package, Key: KeyText,
	}),
	standard(Scheme{
		Name: "finch", Provider: "Finch", Source: "https://developer.tryfinch.com/developer-resources/Webhooks",
		Setup: "Dashboard → Developers → Webhooks → Add endpoint; the signing secret is shown then.",
		Proof: Package, Forms: []Form{{Signature: "Finch-Signature", Timestamp: "Finch-Timestamp", ID: "Finch-Event-Id"}},
	}),
	standard(Scheme{
		Name: "render", Provider: "Render", Source: "https://render.com/docs/webhooks",
		Setup: "Dashboard → Integrations → Webhooks → Create Webhook; the signing secret (whsec_…) is on its page.",
	}),
	standard(Scheme{
		Name: "incident_io", Provider: "incident.io", Source: "https://api-docs.incident.io/tag/Webhooks-V2",
		Setup: "Settings → Webhooks → Create endpoint; the signing secret (whsec_…) is on its page.",
	}),
	standard(Scheme{
		Name: "brex", Provider: "Brex", Source: "https://developer.brex.com/docs/webhooks/",
		Setup:  "Register the URL by `POST /v1/webhooks`; the secrets come from `GET /v1/webhooks/secrets`.",
		Likely: true,
	}),
	standard(Scheme{
		Name: "loops", Provider: "Loops", Source: "https://loops.so/docs/webhooks",
		Setup:  "Settings → Webhooks: the URL; the signing secret is shown there.",
		Likely: true,
	}),
	standard(Scheme{
		Name: "increase", Provider: "Increase", Source: "https://increase.com/documentation/webhooks",
		Setup:  "Create an event subscription with the URL and a shared secret.",
		Likely: true,
	}),
	standard(Scheme{
		Name: "recall_ai", Provider: "Recall.ai", Source: "https://docs.recall.ai/docs/webhooks",
		Setup:  "Dashboard → Webhooks → Add Endpoint; the signing secret (whsec_…) is on its page.",
		Likely: true,
	}),
	standard(Scheme{
		Name: "vanta", Provider: "Vanta", Source: "https://developer.vanta.com/docs/webhooks",
		Setup:  "Settings → Webhooks → Add Endpoint; the signing secret (whsec_…) is on its page.",
		Likely: true, Forms: []Form{svixForm, standardForm},
	}),
	standard(Scheme{
		Name: "stytch", Provider: "Stytch", Source: "https://stytch.com/docs/guides/dashboard/webhooks",
		Setup:  "Dashboard → Webhooks → Add Endpoint; the signing secret (whsec_…) is on its page.",
		Likely: true, Forms: []Form{svixForm, standardForm},
	}),
	standard(Scheme{
		Name: "formbricks", Provider: "Formbricks", Source: "https://formbricks.com/docs/xm-and-surveys/core-features/integrations/webhooks",
		Setup:  "Integrations → Webhooks → Add Webhook: the URL; the signing secret is shown then.",
		Likely: true,
	}),
	standard(Scheme{
		Name: "gemini", Provider: "Google Gemini API", Source: "https://ai.google.dev/gemini-api/docs",
		Setup:  "Register the URL as a webhook with the API; the signing secret comes in its answer.",
		Likely: true,
	}),
	standard(Scheme{
		Name: "etsy", Provider: "Etsy", Source: "https://developers.etsy.com/documentation/",
		Setup:  "App settings → Webhooks: the URL; the signing secret (whsec_…) is shown there.",
		Likely: true,
	}),
	standard(Scheme{
		Name: "beehiiv", Provider: "beehiiv", Source: "https://developers.beehiiv.com/",
		Setup:  "Settings → Webhooks → New endpoint; the signing secret (whsec_…) is on its page.",
		Likely: true, Forms: []Form{svixForm, standardForm},
	}),
	standard(Scheme{
		Name: "guesty", Provider: "Guesty", Source: "https://open-api-docs.guesty.com/docs/webhooks",
		Setup:  "Register the URL as a webhook with the Open API; the signing secret comes from `GET /v1/webhooks-v2/secret`, or the webhook's settings.",
		Likely: true, Forms: []Form{svixForm, standardForm},
	}),
	standard(Scheme{
		Name: "nash", Provider: "Nash", Source: "https://docs.usenash.com/",
		Setup:  "Portal → Settings → Webhooks → Add Endpoint; the signing secret (whsec_…) is on its page.",
		Likely: true, Forms: []Form{svixForm, standardForm},
	}),
	standard(Scheme{
		Name: "pleo", Provider: "Pleo", Source: "https://developers.pleo.io/",
		Setup:  "Create a webhook subscription with the URL; the signing secret (whsec_…) is shown with it.",
		Likely: true, Forms: []Form{svixForm, standardForm},
	}),
	standard(Scheme{
		Name: "safebase", Provider: "SafeBase", Source: "https://help.safebase.io/",
		Setup:  "Settings → Webhooks → Add Endpoint; the signing secret (whsec_…) is on its page.",
		Likely: true, Forms: []Form{svixForm, standardForm},
	}),
	standard(Scheme{
		Name: "sardine", Provider: "Sardine", Source: "https://docs.sardine.ai/",
		Setup:  "Dashboard → Webhooks → Add Endpoint; the signing secret (whsec_…) is on its page.",
		Likely: true, Forms: []Form{svixForm, standardForm},
	}),
}
