package signature

import (
	"net/http"
	"strings"
)

// sharedHeaders are headers that have the same value in many deliveries of a webhook:
// headers of HTTP and of proxies, and those that name the event, the webhook or the
// sender. As an identity, they would make the second delivery a duplicate of the first.
var sharedHeaders = setOf(
	"Accept", "Accept-Charset", "Accept-Encoding", "Accept-Language", "Cache-Control", "Connection", "Content-Disposition", "Content-Encoding",
	"Content-Language", "Content-Length", "Content-Type", "Dnt", "Expect", "Forwarded", "From", "Host", "Keep-Alive", "Origin", "Pragma",
	"Proxy-Connection", "Referer", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Upgrade-Insecure-Requests", "User-Agent", "Via",
	"X-Requested-With",

	"Cf-Connecting-Ip", "Cf-Ipcountry", "Cf-Visitor", "Cdn-Loop", "True-Client-Ip", "X-Client-Ip", "X-Real-Ip", "X-Scheme",

	"Circleci-Event-Type", "Linear-Event", "Sentry-Hook-Resource", "Twitch-Eventsub-Subscription-Type", "Twitch-Eventsub-Message-Type",
	"X-Buildkite-Event", "X-Discourse-Event", "X-Discourse-Event-Type", "X-Discourse-Instance", "X-Event-Key", "X-Forgejo-Event", "X-Forgejo-Event-Type",
	"X-Gitea-Event", "X-Gitea-Event-Type", "X-Github-Enterprise-Host", "X-Github-Enterprise-Version", "X-Github-Event", "X-Github-Hook-Id",
	"X-Github-Hook-Installation-Target-Id", "X-Github-Hook-Installation-Target-Type", "X-Gitlab-Event", "X-Gitlab-Instance", "X-Gitlab-Webhook-Uuid",
	"X-Gogs-Event", "X-Gogs-Event-Type", "X-Hook-Uuid", "X-Shopify-Api-Version", "X-Shopify-Shop-Domain", "X-Shopify-Topic", "X-Wc-Webhook-Event",
	"X-Wc-Webhook-Id", "X-Wc-Webhook-Resource", "X-Wc-Webhook-Source", "X-Wc-Webhook-Topic",
)

func setOf(names ...string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, name := range names {
		set[name] = true
	}
	return set
}

// IsSharedHeader tells whether a header has the same value in many deliveries of a
// webhook, and so cannot identify one.
func IsSharedHeader(name string) bool {
	name = http.CanonicalHeaderKey(name)
	return sharedHeaders[name] || strings.HasPrefix(name, "X-Forwarded-") || strings.HasPrefix(name, "Sec-")
}
