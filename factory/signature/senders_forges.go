package signature

import (
	"time"
)

// forgeRows are like certainRows, for the making of software: code forges, builds, registries and hosts.
var forgeRows = []*Scheme{
	{
		Name: "azure_devops", Provider: "Azure DevOps", Source: "https://learn.microsoft.com/azure/devops/service-hooks/services/webhooks",
		Setup:     "Project settings → Service hooks → Create subscription → Web Hooks: the URL, and a basic authentication user name and password of your choice. The secret is `user:password`.",
		Note:      "User and password are compared, nothing is signed. No header names a delivery: the body's `id` does.",
		Algorithm: Basic,
		Forms:     []Form{{Signature: "Authorization"}},
	},
	{
		Name: "bitbucket", Provider: "Bitbucket", Source: "https://support.atlassian.com/bitbucket-cloud/docs/manage-webhooks/",
		Setup: "Repository settings → Webhooks → Add webhook: the URL, and a secret of your choice.",
		Proof: Published,
		Forms: []Form{{Signature: "X-Hub-Signature"}}, Parse: Parse{Prefix: "sha256="},
		Identity: []string{"X-Request-Uuid"},
	},
	{
		Name: "buildkite", Provider: "Buildkite", Source: "https://buildkite.com/docs/apis/webhooks/pipelines",
		Setup:    "Settings → Notification Services → Webhook → Add: the URL; let the token be sent as X-Buildkite-Signature. The token is the secret.",
		Template: "{ts}.{body}", Tolerance: 5 * time.Minute,
		Forms: []Form{{Signature: "X-Buildkite-Signature"}}, Parse: Parse{Separator: ",", Prefix: "signature=", TimestampKey: "timestamp="},
	},
	{
		Name: "buildkite_token", Provider: "Buildkite", Source: "https://buildkite.com/docs/apis/webhooks/pipelines",
		Setup:     "As `buildkite`, with the token sent as plain text.",
		Note:      "The token is compared, nothing is signed: choose the HMAC signature and `buildkite` instead.",
		Algorithm: Token,
		Forms:     []Form{{Signature: "X-Buildkite-Token"}},
	},
	{
		Name: "circleci", Provider: "CircleCI", Source: "https://circleci.com/docs/outbound-webhooks/",
		Setup: "Project Settings → Webhooks → Add Webhook: the URL, and a secret token of your choice.",
		Proof: Published,
		Forms: []Form{{Signature: "Circleci-Signature"}}, Parse: Parse{Separator: ",", Prefix: "v1="},
	},
	{
		Name: "forgejo", Provider: "Forgejo", Source: "https://forgejo.org/docs/latest/user/webhooks/",
		Setup:      "Settings → Webhooks → Add webhook → Forgejo: the URL, POST content type application/json, and a secret of your choice.",
		Forms:      []Form{{Signature: "X-Forgejo-Signature"}, {Signature: "X-Gitea-Signature"}},
		Identity:   []string{"X-Forgejo-Delivery", "X-Gitea-Delivery"},
		FormAdvice: "set its POST content type to application/json",
	},
	{
		Name: "gitea", Provider: "Gitea", Source: "https://docs.gitea.com/usage/webhooks",
		Setup:      "Settings → Webhooks → Add Webhook → Gitea: the URL, POST content type application/json, and a secret of your choice.",
		Forms:      []Form{{Signature: "X-Gitea-Signature"}, {Signature: "X-Gogs-Signature"}},
		Identity:   []string{"X-Gitea-Delivery"},
		FormAdvice: "set its POST content type to application/json",
	},
	{
		Name: "github", Provider: "GitHub", Source: "https://docs.github.com/webhooks/using-webhooks/validating-webhook-deliveries",
		Setup: "Repository or organisation → Settings → Webhooks → Add webhook: the URL, content type application/json, and a secret of your choice.",
		Note:  "No time is signed: X-GitHub-Delivery alone tells a repetition. X-Hub-Signature (SHA-1) is not accepted.",
		Proof: Published,
		Forms: []Form{{Signature: "X-Hub-Signature-256"}}, Parse: Parse{Prefix: "sha256="},
		Identity: []string{"X-Github-Delivery"},
	},
	{
		Name: "gitlab", Provider: "GitLab", Source: "https://docs.gitlab.com/user/project/integrations/webhooks/",
		Setup:     "Settings → Webhooks → Add new webhook: the URL, and a secret token of your choice.",
		Note:      "The token is compared, nothing is signed. Versions that sign are better served by `gitlab_signed`.",
		Algorithm: Token,
		Forms:     []Form{{Signature: "X-Gitlab-Token"}},
		Identity:  []string{"Idempotency-Key"},
	},
	{
		Name: "gogs", Provider: "Gogs", Source: "https://gogs.io/docs/features/webhook",
		Setup:      "Settings → Webhooks → Add a new webhook → Gogs: the URL, content type application/json, and a secret of your choice.",
		Forms:      []Form{{Signature: "X-Gogs-Signature"}},
		Identity:   []string{"X-Gogs-Delivery"},
		FormAdvice: "set its content type to application/json",
	},
	{
		Name: "harbor", Provider: "Harbor", Source: "https://goharbor.io/docs/latest/working-with-projects/project-configuration/configure-webhooks/",
		Setup:     "Project → Webhooks → New webhook: the endpoint URL, payload format default, and the secret as auth header.",
		Note:      "The secret is compared, nothing is signed.",
		Algorithm: Token,
		Forms:     []Form{{Signature: "Authorization"}},
	},
	{
		Name: "heroku", Provider: "Heroku", Source: "https://devcenter.heroku.com/articles/app-webhooks",
		Setup:    "`heroku webhooks:add -i api:release -l notify -u URL -s SECRET -a APP`, with a secret of your choice.",
		Encoding: Base64,
		Forms:    []Form{{Signature: "Heroku-Webhook-Hmac-Sha256"}},
	},
	{
		Name: "netlify", Provider: "Netlify", Source: "https://docs.netlify.com/deploy/deploy-notifications/",
		Setup:     "Project configuration → Notifications → Add: HTTP POST request, the URL, and a JWS secret token of your choice.",
		Note:      "No time is signed.",
		Algorithm: JWTHS256,
		Forms:     []Form{{Signature: "X-Webhook-Signature"}},
		JWT:       &JWT{Issuer: "netlify", BodyHash: "sha256", BodyEncoding: Hex},
	},
	{
		Name: "nexus", Provider: "Sonatype Nexus Repository", Source: "https://help.sonatype.com/en/working-with-hmac-payloads.html",
		Setup:     "Administration → System → Capabilities → Create: Webhook, the URL, and a secret key of your choice.",
		Note:      "SHA-1.",
		Algorithm: HMACSHA1,
		Forms:     []Form{{Signature: "X-Nexus-Webhook-Signature"}},
		Identity:  []string{"X-Nexus-Webhook-Delivery"},
	},
	{
		Name: "npm", Provider: "npm registries", Source: "https://github.blog/changelog/2024-07-16-npm-hooks-sunset/",
		Setup: "In the settings of a private registry that still sends npm hooks: the URL, and a shared secret of your choice.",
		Note:  "The public registry stopped sending hooks in July 2024.",
		Forms: []Form{{Signature: "X-Npm-Signature"}}, Parse: Parse{Prefix: "sha256="},
	},
	{
		Name: "sonarqube", Provider: "SonarQube", Source: "https://docs.sonarsource.com/sonarqube-server/latest/project-administration/webhooks/",
		Setup: "Project or global Administration → Webhooks → Create: the URL, and a secret of your choice. SonarQube Cloud is alike.",
		Forms: []Form{{Signature: "X-Sonar-Webhook-Hmac-Sha256"}},
	},
	{
		Name: "terraform_cloud", Provider: "HCP Terraform", Source: "https://developer.hashicorp.com/terraform/cloud-docs/api-docs/notification-configurations",
		Setup:     "Workspace → Settings → Notifications → Create: Webhook, the URL, and a token of your choice.",
		Note:      "SHA-512. On saving it sends a delivery like others, which any 2xx confirms.",
		Algorithm: HMACSHA512,
		Forms:     []Form{{Signature: "X-Tfe-Notification-Signature"}},
	},
	{
		Name: "vercel", Provider: "Vercel", Source: "https://vercel.com/docs/webhooks/webhooks-api#securing-webhooks",
		Setup:     "Team Settings → Webhooks → Create: the URL and the events; the secret is shown once. For webhooks of an integration: its Client Secret.",
		Note:      "SHA-1. Log drains and deploy hooks have other secrets.",
		Algorithm: HMACSHA1,
		Forms:     []Form{{Signature: "X-Vercel-Signature"}},
	},
}
