package console

import (
	"strings"
	"testing"

	"github.com/toolyard/toolyard/internal/testenv/login"
)

// TestSignInAtAnIssuer: the issuer sends a person back, from another site, to the page that they asked for. An answer
// that this tab has not asked for, and one that says no, sign nobody in.
func TestSignInAtAnIssuer(t *testing.T) {
	t.Parallel()
	i := login.Start(t, nil)
	i.ID = map[string]any{"sub": "ann"}
	s := start(t, "--token-file", tokenFile(t), "--oidc-issuer", i.URL, "--oidc-audience", "toolyard",
		"--oidc-client-id", i.ClientID)
	url := strings.Replace(s.url, "127.0.0.1", "localhost", 1) // the issuer is another site
	i.Redirect = url + "/"
	b := open(t, url)
	at := "Sign in at " + strings.TrimPrefix(i.URL, "http://")
	b.visit("#/tools")
	b.has(at)
	b.accessible("signing in at an issuer")
	b.button(at)
	b.has("agent ann")
	b.until("the page is the one that was asked for", `location.hash === "#/tools" && location.search === ""`)
	if seen := value[string](b, `document.cookie + JSON.stringify(sessionStorage)`); seen != "{}" {
		t.Errorf("a script reads, after the sign-in: %s", seen)
	}

	b.button("Sign out")
	i.Refuses = "No entry for ann."
	b.button(at)
	b.has("The issuer says: No entry for ann.")

	for _, answer := range []string{"?code=another&state=another", "?code=another"} {
		b.visit(answer)
		b.has("no answer to a sign-in of this tab")
	}
	b.fill("input[name=token]", operator)
	b.click("form button")
	b.has("operator (olga)")
}
