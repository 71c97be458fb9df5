package dispatchercmd

import (
	"log/slog"
	"net/url"
	"strings"

	"github.com/spf13/pflag"

	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/api"
)

// maxClientSecret is how many bytes the file of a client's secret may have.
const maxClientSecret = 4 << 10

// oidcFlags say whose JWTs the HTTP API accepts in place of tokens.
type oidcFlags struct {
	issuer, audience, agentClaim string
	ca, publicURL                string
	client, secretFile           string
	scopes                       []string
}

func (o *oidcFlags) add(f *pflag.FlagSet) {
	defer cli.Topic(f, cli.TopicHTTP)()
	f.StringVar(&o.issuer, "oidc-issuer", "", "the HTTP API also accepts JWTs of the OpenID Connect issuer at `URL`, in "+
		"place of tokens; with --oidc-audience")
	f.StringVar(&o.audience, "oidc-audience", "", "the `AUDIENCE` that a JWT must be for")
	f.StringVar(&o.agentClaim, "oidc-agent-claim", "sub", "the `CLAIM` of a JWT that names its agent")
	f.StringVar(&o.client, "oidc-client-id", "", "people sign in to the console at the issuer, which knows this server "+
		"by this `ID` and its address (--public-url), with / at the end, as a redirect URL")
	f.StringVar(&o.secretFile, "oidc-client-secret-file", "", "what the issuer asks of the client is in `FILE` "+
		"(default: nothing, as of a public client)")
	f.StringSliceVar(&o.scopes, "oidc-scopes", nil, "the `SCOPES` that a person's token is asked for (default: openid)")
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
		switch {
		case o.audience != "":
			return nil, cli.Usagef("--oidc-audience: there is no --oidc-issuer")
		case o.client != "":
			return nil, cli.Usagef("--oidc-client-id: there is no --oidc-issuer")
		}
		return nil, nil //nolint:nilnil // there is none
	}
	login := api.LoginConfig{ClientID: o.client, Scopes: o.scopes}
	if o.secretFile != "" {
		if o.client == "" {
			return nil, cli.Usagef("--oidc-client-secret-file: there is no --oidc-client-id")
		}
		text, err := cli.ReadFile("--oidc-client-secret-file", o.secretFile, maxClientSecret)
		if err != nil {
			return nil, err
		}
		if login.ClientSecret = strings.TrimSpace(string(text)); login.ClientSecret == "" {
			return nil, cli.Usagef("--oidc-client-secret-file %s: it is empty", o.secretFile)
		}
	}
	with, err := cli.HTTPClient("--oidc-ca", o.ca)
	if err != nil {
		return nil, err
	}
	i, err := api.NewIssuer(api.IssuerConfig{URL: o.issuer, Audience: o.audience, AgentClaim: o.agentClaim,
		Login: login, Client: with, Log: log})
	if err != nil {
		return nil, cli.Usagef("--oidc-issuer, --oidc-audience: %w", err)
	}
	return i, nil
}
