package dispatchercmd

import (
	"log/slog"
	"net/url"

	"github.com/spf13/pflag"

	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/api"
)

// oidcFlags say whose JWTs the HTTP API accepts in place of tokens.
type oidcFlags struct {
	issuer, audience, agentClaim string
	ca, publicURL                string
}

func (o *oidcFlags) add(f *pflag.FlagSet) {
	defer cli.Topic(f, cli.TopicHTTP)()
	f.StringVar(&o.issuer, "oidc-issuer", "", "the HTTP API also accepts JWTs of the OpenID Connect issuer at `URL`, in "+
		"place of tokens; with --oidc-audience")
	f.StringVar(&o.audience, "oidc-audience", "", "the `AUDIENCE` that a JWT must be for")
	f.StringVar(&o.agentClaim, "oidc-agent-claim", "sub", "the `CLAIM` of a JWT that names its agent")
	f.StringVar(&o.ca, "oidc-ca", "", "check the issuer's certificate against those in `FILE`")
	f.StringVar(&o.publicURL, "public-url", "", "under which `URL` clients reach the HTTP API, for those that ask who "+
		"makes its tokens (default: as each request says)")
}

// open is nil without an issuer.
func (o *oidcFlags) open(log *slog.Logger) (*api.Issuer, error) {
	if o.publicURL != "" {
		if u, err := url.Parse(o.publicURL); err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
			return nil, cli.Usagef("--public-url %q: use https://HOST", o.publicURL)
		}
	}
	if o.issuer == "" {
		if o.audience != "" {
			return nil, cli.Usagef("--oidc-audience: there is no --oidc-issuer")
		}
		return nil, nil //nolint:nilnil // there is none
	}
	with, err := cli.HTTPClient("--oidc-ca", o.ca)
	if err != nil {
		return nil, err
	}
	i, err := api.NewIssuer(api.IssuerConfig{URL: o.issuer, Audience: o.audience, AgentClaim: o.agentClaim,
		Client: with, Log: log})
	if err != nil {
		return nil, cli.Usagef("--oidc-issuer, --oidc-audience: %w", err)
	}
	return i, nil
}
