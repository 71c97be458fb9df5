package redact

import (
	"encoding/base64"
	"encoding/hex"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

// The samples are put together from pieces, or this file would look like a leak to scanners.
const (
	alnum36  = "16C7e42F292c6912E7710c838347Ae178B4a"
	alnum40  = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzzEXAMPLEK"
	hexish   = "0a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d"
	jwtPart  = "hbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9"
	keyLines = "MIIEowIBAAKCAQEAx4UbaDzY5xjW6hc9jwN0mX33XpTDVW/WqHp6AKtA1b2c3d4\nMIIEowIBAAKCAQEAx4UbaDzY5xjW6hc9jwN0mX33XpTDVW/WqHp6AKtA1b2c3d4\n"
	begin    = "-----BEGIN "
	end      = "-----END "
)

// TestShapes: each is hidden and nothing around it.
func TestShapes(t *testing.T) {
	r := New(nil)
	for what, secrets := range map[string][]string{
		"GitHub token": {"ghp_" + alnum36, "gho_" + alnum36, "ghu_" + alnum36, "ghs_" + alnum36, "ghr_" + alnum36,
			"github_pat_" + "11ABCDEFG0abcdefghij12" + "_" + strings.Repeat("a1B", 19) + "zz"},
		"GitLab token":   {"glpat-" + "x7Yz12345-abcdefGHIJ", "glrt-" + "x7Yz12345_abcdefGHIJ"},
		"AWS access key": {"AKIA" + "IOSFODNN7EXAMPLE", "ASIA" + "IOSFODNN7EXAMPLE"},
		"Slack token": {"xoxb-" + "123456789012-1234567890123-abcdefABCDEF0123456789ab", "xoxp-" +
			"123456789012-123456789012-abcdef0123456789",
			"xapp-" + "1-A012BCDEFGH-1234567890123-" + hexish + hexish[:24]},
		"Anthropic key": {"sk-ant-" + "api03-" + strings.Repeat("aB3_-", 18) + "AA", "sk-ant-" + "oat01-" +
			strings.Repeat("aB3_-", 18)},
		"OpenAI key": {"sk-" + "abcdefghij0123456789" + "T3BlbkFJ" + "abcdefghij0123456789", "sk-" + "proj-" +
			strings.Repeat("a-B_1", 14) + "T3BlbkFJ" + strings.Repeat("c2_D-", 14)},
		"Google API key":     {"AIza" + "SyA-1234567890abcdefghijklmnopqrstu"},
		"Google token":       {"ya29." + strings.Repeat("a0AfH6", 10), "GOCSPX-" + "abcdefghijklmnopqrstuvwxyz12"},
		"Stripe key":         {"sk_live_" + "51H8abcdefghijklmnopqrst", "rk_test_" + "51H8abcdefghijklmnopqrst"},
		"npm token":          {"npm_" + alnum36},
		"PyPI token":         {"pypi-AgEIcHlwaS5vcmc" + strings.Repeat("CJDY1", 12)},
		"Hugging Face token": {"hf_" + strings.Repeat("aBcDe", 6) + "fGhI"},
		"JSON web token":     {"eyJ" + jwtPart + "." + "eyJ" + jwtPart + "." + hexish},
		"private key": {
			begin + "RSA PRIVATE KEY-----\n" + keyLines + end + "RSA PRIVATE KEY-----",
			begin + "OPENSSH PRIVATE KEY-----\r\n" + keyLines + end + "OPENSSH PRIVATE KEY-----",
			begin + "PRIVATE KEY-----\\n" + strings.ReplaceAll(keyLines, "\n", "\\n") + end + "PRIVATE KEY-----",
			begin + "EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0123456789ABCDEF\n\n" +
				keyLines + end + "EC PRIVATE KEY-----",
			begin + "PGP PRIVATE KEY BLOCK-----\n\n" + keyLines + end + "PGP PRIVATE KEY BLOCK-----",
			// cut off, with numbered lines
			begin + "PRIVATE KEY-----\n     2\t" + strings.ReplaceAll(strings.TrimSpace(keyLines), "\n", "\n     3\t"),
		},
	} {
		for _, secret := range secrets {
			for _, around := range []struct{ before, after string }{{"", ""}, {"key: ", "\nnext"}, {`{"a":"`, `"}`},
				{"(", ")."}} {
				want := around.before + "[redacted: " + what + "]" + around.after
				if got := r.Redact(around.before + secret + around.after); got != want {
					t.Errorf("%q in %q gave\n%q", secret, around, got)
				}
			}
		}
	}
}

// TestShapesInContext: what is hidden is only the part that is secret.
func TestShapesInContext(t *testing.T) {
	r := New(nil)
	for text, want := range map[string]string{
		"postgres://app:hunter2!x@db.internal:5432/app": "postgres://app:[redacted: " +
			"password]@db.internal:5432/app",
		"redis://:s3cr3t@127.0.0.1": "redis://:[redacted: " +
			"password]@127.0.0.1",
		"see https://u:p4ss@[::1]/x and http://a:b8c@h/": "see https://u:[redacted: " +
			"password]@[::1]/x and http://a:[redacted: password]@h/",
		"Authorization: Bearer " +
			hexish: "Authorization: Bearer [redacted: authorization]",
		`"authorization": "Basic dXNlcjpwYXNzd29yZA=="`: `"authorization": "Basic [redacted: authorization]"`,
		`{\"Authorization\":\"token ` + hexish +
			`\"}`: `{\"Authorization\":\"token [redacted: authorization]\"}`,
		"curl -H 'X-Api-Key: " + hexish +
			"' x": "curl -H 'X-Api-Key: [redacted: API key]' x",
		"it sends Bearer " + hexish +
			".": "it sends Bearer [redacted: bearer token]",
		"aws_secret_access_key = " + alnum40 +
			"\n": "aws_secret_access_key = [redacted: AWS secret key]\n",
		`"SecretAccessKey": "` + alnum40 +
			`",`: `"SecretAccessKey": "[redacted: AWS secret key]",`,
		"https://hooks.slack.com/" + "services/T01234567/B01234567/" +
			hexish[:24]: "https://hooks.slack.com/services/[redacted: Slack webhook]",
		"AKIA" + "IOSFODNN7EXAMPLE,AKIA" +
			"IOSFODNN7EXAMPLF": "[redacted: AWS access key],[redacted: AWS access key]",
	} {
		if got := r.Redact(text); got != want {
			t.Errorf("%q gave\n%q, want\n%q", text, got, want)
		}
	}
}

// TestAPasswordWhoseFirstByteIsEscaped: a password that begins with a reserved character has to be escaped in a URL. It
// is no format such as %s.
func TestAPasswordWhoseFirstByteIsEscaped(t *testing.T) {
	r := New(nil)
	for _, password := range []string{"%23Zx9hunter2secret", "%40Zx9hunter2secret", "%2fZx9hunter2secret",
		"%C3%A9hunter2secret", "Zx9%40hunter2secret"} {
		const before, after = "DATABASE_URL=postgres://app:", "@db.internal:5432/app"
		want := before + "[redacted: password]" + after
		if got := r.Redact(before + password + after); got != want {
			t.Errorf("%s gave %s", password, got)
		}
	}
	for _, format := range []string{"%s%s", "%[2]s", "%-8s", "%PASSWORD%"} {
		text := "fmt.Sprintf(\"postgres://app:" + format + "@db.internal\")"
		if got := r.Redact(text); got != text {
			t.Errorf("%s became %s", text, got)
		}
	}
}

// TestOrdinaryTextStays: what people and programs write about secrets is none.
func TestOrdinaryTextStays(t *testing.T) {
	r := New(nil)
	for _, text := range []string{
		"", "a", "ghp_", "ghp_short", "xghp_" + alnum36, "the prefix ghp_ and 36 characters",
		"mask-something-long-and-hyphenated-here",
		"sk-learn and task-abcdefghijklmnopqrstuvwxyz0123456789abcdefgh", "risk-" + hexish, "disk-" +
			alnum36, "AKIAIOSFODNN7EXAMPL", "XAKIAIOSFODNN7EXAMPLE",
		"AKIA" + "IOSFODNN7EXAMPLEX", "AIzaShort", "xoxb-your-token-goes-here-please",
		"npm_config_registry=https://example.com/", "hf_hub_download(repo_id)",
		"eyJhbGciOiJIUzI1NiJ9", "eyJ.eyJ.eyJ", "import 'eyJ" + jwtPart + ".js'",
		begin + "PUBLIC KEY-----\n" + keyLines + end + "PUBLIC KEY-----", begin + "CERTIFICATE-----\n" + keyLines +
			end + "CERTIFICATE-----",
		`strings.Contains(s, "` + begin + `PRIVATE KEY-----")`, `const a, b = "` + begin + `RSA PRIVATE KEY-----", "` +
			end + `RSA PRIVATE KEY-----"`,
		"https://example.com:8080/a@b", "https://user@example.com/", "git@github.com:a/b.git",
		"postgres://user:$PASSWORD@host/db", "postgres://user:${DB_PASSWORD}@host",
		"https://user:password@example.com", "https://user:<password>@example.com", "https://u:***@h",
		"https://u:xxxxx@h", "time 10:20 http://h/x:y@z",
		"Authorization: Bearer <token>", "Authorization: Bearer $TOKEN",
		"Authorization: bearer authentication is needed", "the Bearer authentication-scheme-of-the-web is",
		"Bearer of good news and other things", "api-key: your-own-key-goes-here", "sha256 " + hexish +
			hexish[:24], "commit " + hexish, "uuid 550e8400-e29b-41d4-a716-446655440000",
		"aws_secret_access_key is 40 characters long", "SecretAccessKey: string", "https://hooks.slack.com/services/",
		"sk_live_ and sk_test_ are prefixes",
	} {
		if got := r.Redact(text); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}

// TestKnownValues: a value that is known is found as it is and in every way that it is commonly written.
func TestKnownValues(t *testing.T) {
	const value = `p"ä/ss <wörd>+1&x`
	r := New([]Secret{{"DB_PASSWORD", value}})
	quoted := must.JSON(t, value)
	texts := map[string]string{
		"plain": value, "twice": value + " " + value, "JSON": string(quoted), "query": url.QueryEscape(value),
		"path": url.PathEscape(value),
		"hex":  "702" + "2c3a42f7373203c77c3b672643e2b312678",
	}
	for _, user := range []string{"", "a", "ab", "abc", "user:"} {
		for _, after := range []string{"", "x", "yz"} {
			texts["base64 of "+user+"_"+after] = base64.StdEncoding.EncodeToString([]byte(user + value + after))
			texts["base64url of "+user+"_"+after] = base64.URLEncoding.EncodeToString([]byte(user + value + after))
		}
	}
	for how, text := range texts {
		got := r.Redact("before " + text + " after")
		if !Marked(got) || !strings.Contains(got, "[redacted: DB_PASSWORD]") || !strings.HasPrefix(got, "before ") ||
			!strings.HasSuffix(got, " after") {
			t.Errorf("%s: %q gave %q", how, text, got)
		}
		if how == "twice" && got != "before [redacted: DB_PASSWORD] [redacted: DB_PASSWORD] after" {
			t.Errorf("twice gave %q", got)
		}
	}
	if got := r.Redact(`p"ä/ss wörd`); got != `p"ä/ss wörd` {
		t.Errorf("another text became %q", got)
	}
}

func TestKnownValuesThatOverlap(t *testing.T) {
	r := New([]Secret{{"SHORT", "abcdefgh"}, {"LONG", "abcdefghijkl"}, {"TINY", "abc"}, {"AGAIN", "abcdefgh"}})
	if got, want := r.Redact("abcdefghijkl abcdefgh abc"), "[redacted: LONG] [redacted: SHORT] abc"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	key := begin + "PRIVATE KEY-----\n" + strings.ReplaceAll(keyLines, "MII", "QQQ") + end + "PRIVATE KEY-----\n"
	line := strings.Split(key, "\n")[1]
	if got, want := New([]Secret{{"DEPLOY_KEY", key}}).Redact("grep: "+line),
		"grep: [redacted: DEPLOY_KEY]"; got != want {
		t.Errorf("one line of a key gave %q", got)
	}
}

func TestEnviron(t *testing.T) {
	got := map[string]string{}
	for _, s := range Environ([]string{
		"GITHUB_TOKEN=abcd1234", "OPENAI_API_KEY=abcd12345", "AWS_SECRET_ACCESS_KEY=" +
			alnum40, "PGPASSWORD=hunter22", "MYSQL_PWD=hunter23",
		"client_secret=Abcdefgh", "DATABASE_URL=postgres://app:hunter24@db/app", "LONG_TOKEN=abcdefghijklmnopq",
		"PWD=/home/user1/x", "OLDPWD=/home/user1/y", "SORT_KEY=timestamp", "SHORT_TOKEN=a1", "PATH=/usr/bin:/bin1",
		"KEYMAP=de-latin1", "EMPTY_TOKEN=", "ODD",
		"HOMEPAGE=https://user@example.com/", "TOKENIZERS_PARALLELISM=false",
		"DEV_DB=postgres://postgres:postgres@db/app",
	}) {
		got[s.Name] = s.Value
	}
	want := map[string]string{
		"GITHUB_TOKEN": "abcd1234", "OPENAI_API_KEY": "abcd12345", "AWS_SECRET_ACCESS_KEY": alnum40,
		"PGPASSWORD": "hunter22", "MYSQL_PWD": "hunter23",
		"client_secret": "Abcdefgh", "DATABASE_URL": "hunter24", "LONG_TOKEN": "abcdefghijklmnopq",
	}
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s: %q, want %q", name, got[name], value)
		}
		delete(got, name)
	}
	if len(got) > 0 {
		t.Errorf("these are no secrets: %v", got)
	}
	if text := New(nil).Redact("postgres://postgres:postgres@db/app"); strings.Count(text, "postgres") != 2 {
		t.Errorf("a password that is a plain word, in its URL: %s", text)
	}
}

// TestInURLs: in a list of addresses each has its own. A plain word is none: it would be missing everywhere.
func TestInURLs(t *testing.T) {
	got := InURLs("N", "nats://app:hunter24@a:4222, nats://s3cr3t-token@b, nats://c, https://user@d/, tls://x:@e, %zz,"+
		"nats://app:toolyard@f, nats://password@g, nats://h:correcthorsebattery@i")
	want := []Secret{{"N", "hunter24"}, {"N", "s3cr3t-token"}, {"N", "correcthorsebattery"}}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// TestPasswordsThatNeedNoEscape: those that other programs take in a URL are found as well, whatever Go takes for one.
func TestPasswordsThatNeedNoEscape(t *testing.T) {
	for value, want := range map[string]string{
		"postgres://app:Ab3,cdef9h@db/app":             "Ab3,cdef9h", // RFC 3986 allows the comma
		"nats://a,nats://app:Ab3,cd,ef9h@b:4222,c:422": "Ab3,cd,ef9h",
		"postgres://app:Ab3,cdef9h@a:5432,b:5432/app":  "Ab3,cdef9h",
		"postgres://app:Ab3^cdef9h@db:5432/app":        "Ab3^cdef9h",
		"postgres://app:Ab3#cdef9h@db:5432/app":        "Ab3#cdef9h",
		"postgres://app:äb3 cdef9h@a:5432,b:5432/app":  "äb3 cdef9h",
		"postgres://app:Ab3%23|def9h@db:5432/app":      "Ab3#|def9h",
		"postgres://app:Ab3%^cdef9h@db:5432/app":       "Ab3%^cdef9h",
		"NATS://s3cr3t^token@a:4222":                   "s3cr3t^token",
	} {
		got := New(Environ([]string{"DATABASE=" + value})).Redact("it is " + want + " today")
		if got != "it is [redacted: DATABASE] today" {
			t.Errorf("%s: %s", value, got)
		}
	}
	for _, value := range []string{"http://localhost:8080/npm/@scope/package", "see https://a, and b:some words@c",
		"a:password@b,c", "https://user^name@d/", "://:@"} {
		for _, s := range Environ([]string{"DATABASE=" + value}) {
			if len(s.Value) >= MinValueBytes {
				t.Errorf("%s: %q is no secret", value, s.Value)
			}
		}
	}
}

func TestNamed(t *testing.T) {
	env := map[string]string{"A": "long enough", "B": "short", "C": ""}
	lookup := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
	got, err := Named([]string{"A"}, lookup)
	if err != nil || len(got) != 1 || got[0] != (Secret{"A", "long enough"}) {
		t.Errorf("%v, %v", got, err)
	}
	for name, want := range map[string]string{"B": "less than 8 bytes", "C": `no variable "C"`,
		"D": `no variable "D"`} {
		if _, err := Named([]string{"A", name}, lookup); err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "short\"") {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
}

// FuzzRedact: redacting twice is redacting once, and a known value never stays.
func FuzzRedact(f *testing.F) {
	for _, seed := range []string{"ghp_" + alnum36, "https://u:p4ss@h", "Authorization: Bearer " + hexish, begin +
		"PRIVATE KEY-----\n" + keyLines, "Bearer bearer Authorization: token authorization",
		"://a:b@c://d:e8e@f", "tok-en-00 tok-en-0tok-en-00"} {
		f.Add(seed)
	}
	r := New([]Secret{{"T", "tok-en-00"}})
	f.Fuzz(func(t *testing.T, text string) {
		once := r.Redact(text)
		if strings.Contains(once, "tok-en-00") {
			t.Errorf("%q gave %q", text, once)
		}
		if twice := r.Redact(once); twice != once {
			t.Errorf("%q gave %q, and that %q", text, once, twice)
		}
	})
}

// TestHostileTextIsReadFast: the work grows with the text and not with its square. A square would take many
// minutes here.
func TestHostileTextIsReadFast(t *testing.T) {
	r := New([]Secret{{"T", "tok-en-00"}})
	const size = 1 << 18
	for _, piece := range []string{begin + "PRIVATE KEY-----", begin, "eyJ", "eyJaaaaaaaaaaaaa.", "://a:", "Bearer ",
		"Authorization: Bearer ", "sk-", "sk-ant-", "tok-en-0", "ghp_", "a",
		"%25", "%2525", `\\`, `\u005c`, "\x1b]", "\x1b]x\x1b\\", "\x1b[", "\x1b[1;", "\x1b", "\x1b[1mghp_", "\u009d",
		"tok-en-00", "tok-\x1b[men-00", "dG9rLWVuLTAw\n"} {
		text := strings.Repeat(piece, size/len(piece))
		if got := r.Redact(text); len(got) == 0 {
			t.Errorf("%q gave nothing", piece)
		}
	}
}

// TestASecretIsFoundWithoutTheBlanksAroundIt: a variable often ends in a line break, as of a file that was mounted as a
// variable. Programs take it away, and show the rest.
func TestASecretIsFoundWithoutTheBlanksAroundIt(t *testing.T) {
	const value = "tok-en-00"
	for _, around := range [][2]string{{"", "\n"}, {"", "\r\n"}, {" ", ""}, {"\n", "\n\n"}} {
		raw := around[0] + value + around[1]
		named, err := Named([]string{"API_TOKEN"}, func(string) (string, bool) { return raw, true })
		must.OK(t, err)
		found := Environ([]string{"API_TOKEN=" + raw})
		for how, secrets := range map[string][]Secret{"named": named, "environment": found} {
			r := New(secrets)
			for _, text := range []string{"x " + value + " y", "x" + raw + "y",
				"x " + url.QueryEscape(value) + " y",
				base64.StdEncoding.EncodeToString([]byte("user:" + value)),
				base64.StdEncoding.EncodeToString([]byte("user:" + raw + "and more")),
				hex.EncodeToString([]byte(raw))} {
				if got := r.Redact(text); !Marked(got) {
					t.Errorf("%s, %q: %q stays", how, raw, got)
				}
			}
		}
	}
	// A word that is no secret does not become one by its line break, and what is too short without it is told.
	if got := New(Environ([]string{"SORT_KEY=timestamp\n"})).Redact("the timestamp\n"); Marked(got) {
		t.Errorf("%q: an ordinary word is taken out", got)
	}
	if _, err := Named([]string{"PIN"}, func(string) (string, bool) { return "1234567\n", true }); err == nil {
		t.Error("a value that is too short without its line break is taken")
	}
}
