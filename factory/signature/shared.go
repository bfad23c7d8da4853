package signature

import (
	"net/http"
	"slices"
	"strings"
)

// eventHeaders are headers in which senders name the event, or the webhook or part of the
// sender that sends it. They hold no credential, and are the same in many deliveries.
var eventHeaders = []string{
	"Ce-Source", "Ce-Subject", "Ce-Type", "Circleci-Event-Type", "Linear-Event", "Sentry-Hook-Resource", "Twitch-Eventsub-Message-Type",
	"Twitch-Eventsub-Subscription-Type", "X-Buildkite-Event", "X-Discourse-Event", "X-Discourse-Event-Type", "X-Discourse-Instance",
	"X-Event-Key", "X-Event-Type", "X-Forgejo-Event", "X-Forgejo-Event-Type", "X-GitHub-Enterprise-Host", "X-GitHub-Enterprise-Version",
	"X-GitHub-Event", "X-GitHub-Hook-ID", "X-GitHub-Hook-Installation-Target-ID", "X-GitHub-Hook-Installation-Target-Type",
	"X-Gitea-Event", "X-Gitea-Event-Type", "X-Gitlab-Event", "X-Gitlab-Instance", "X-Gitlab-Webhook-UUID", "X-Gogs-Event",
	"X-Gogs-Event-Type", "X-Hook-UUID", "X-Netlify-Event", "X-Shopify-API-Version", "X-Shopify-Shop-Domain", "X-Shopify-Topic",
	"X-WC-Webhook-Event", "X-WC-Webhook-ID", "X-WC-Webhook-Resource", "X-WC-Webhook-Source", "X-WC-Webhook-Topic",
}

// EventHeaders are headers in which senders name the event or its origin, as the senders
// spell them, sorted. They hold no credential.
func EventHeaders() []string { return slices.Clone(eventHeaders) }

// sharedHeaders are headers that have the same value in many deliveries of a webhook:
// headers of HTTP and of proxies, and headers that name the event, the webhook or the
// sender. As an identity, they would make the second delivery a duplicate of the first.
var sharedHeaders = setOf(append(EventHeaders(),
	"Accept", "Accept-Charset", "Accept-Encoding", "Accept-Language", "Cache-Control", "Connection", "Content-Disposition", "Content-Encoding",
	"Content-Language", "Content-Length", "Content-Type", "Dnt", "Expect", "Forwarded", "From", "Host", "Keep-Alive", "Origin", "Pragma",
	"Proxy-Connection", "Referer", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Upgrade-Insecure-Requests", "User-Agent", "Via",
	"X-Requested-With",

	"Cf-Connecting-Ip", "Cf-Ipcountry", "Cf-Visitor", "Cdn-Loop", "True-Client-Ip", "X-Client-Ip", "X-Real-Ip", "X-Scheme",
)...)

// setOf is a set of headers, with canonical names.
func setOf(names ...string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, name := range names {
		set[http.CanonicalHeaderKey(name)] = true
	}
	return set
}

// IsSharedHeader tells whether a header has the same value in many deliveries of a
// webhook, and so cannot identify a delivery.
func IsSharedHeader(name string) bool {
	name = http.CanonicalHeaderKey(name)
	return sharedHeaders[name] || strings.HasPrefix(name, "X-Forwarded-") || strings.HasPrefix(name, "Sec-")
}
