package host

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"triphammer/cmd/triphammer/client/exit"
	"triphammer/server"
	"triphammer/server/oidc"
)

// oidcSecretVariable is a variable with the secret of the client. It is no flag, because
// command lines are seen by others.
const oidcSecretVariable = "TRIPHAMMER_OIDC_CLIENT_SECRET"

// signInOptions are the settings of the sign-in at an OpenID Connect provider.
type signInOptions struct {
	oidc.Config
	secretFile string
	roles      []string
}

func (o *signInOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.Issuer, "oidc-issuer", "", "address of an OpenID Connect provider at which people sign in to the pages")
	f.StringVar(&o.ClientID, "oidc-client-id", "", "client id of this server at the provider of --oidc-issuer")
	f.StringVar(&o.secretFile, "oidc-client-secret-file", "", "file with the client's secret, read at each sign-in; or the variable "+oidcSecretVariable)
	f.StringSliceVar(&o.Scopes, "oidc-scopes", []string{"openid", "email", "profile"}, "scopes to ask for; some providers tell groups only with one more")
	f.StringVar(&o.GroupsClaim, "oidc-groups-claim", "groups", "claim with the groups of a person")
	f.StringSliceVar(&o.roles, "oidc-role", nil,
		"who gets which role: ROLE=email:ADDRESS, ROLE=domain:example.com, ROLE=group:NAME or ROLE=subject:ID, where ROLE is viewer, operator or manager; nobody else gets in")
}

// provider makes the provider; nil if there is none.
func (o *signInOptions) provider(baseURL string) (*oidc.Provider, error) {
	if o.Issuer == "" {
		if o.ClientID != "" || o.secretFile != "" || len(o.roles) > 0 {
			return nil, exit.With(exit.Usage, "--oidc-client-id, --oidc-client-secret-file and --oidc-role go with --oidc-issuer")
		}
		return nil, nil
	}
	switch {
	case o.ClientID == "":
		return nil, exit.With(exit.Usage, "--oidc-client-id is missing: the id that the provider %s has given to this server", o.Issuer)
	case len(o.roles) == 0:
		return nil, exit.With(exit.Usage, "--oidc-role is missing: without a rule, such as viewer=domain:example.com, nobody gets in")
	}
	cfg := o.Config
	cfg.Redirect, cfg.Now = server.CallbackURL(baseURL), Now
	for _, text := range o.roles {
		rule, err := oidc.ParseRule(text)
		if err != nil {
			return nil, exit.With(exit.Usage, "--oidc-role %w", err)
		}
		cfg.Rules = append(cfg.Rules, rule)
	}
	switch variable := os.Getenv(oidcSecretVariable); {
	case o.secretFile != "" && variable != "":
		return nil, exit.With(exit.Usage, "--oidc-client-secret-file and %s exclude each other", oidcSecretVariable)
	case o.secretFile != "":
		cfg.Secret = func() (string, error) {
			text, err := os.ReadFile(o.secretFile)
			if secret := strings.TrimSpace(string(text)); err == nil && secret != "" {
				return secret, nil
			}
			return "", errors.Join(fmt.Errorf("%s holds none", o.secretFile), err)
		}
		if _, err := cfg.Secret(); err != nil {
			return nil, exit.With(exit.Usage, "--oidc-client-secret-file: %w", err)
		}
	case variable != "":
		cfg.Secret = func() (string, error) { return variable, nil }
	}
	p, err := oidc.New(cfg)
	if err != nil {
		return nil, exit.With(exit.Usage, "--oidc-issuer: %w", err)
	}
	return p, nil
}
