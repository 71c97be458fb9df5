// The frame: who is signed in, where one can go, and the page that is shown.

import { h, Fragment, render } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { Me, WaitingCalls } from "./api";
import { comeBack, Failed, get, leaveToSignIn, onSignedOut, signIn, signOut, whenSignedOut, whereToSignIn, whoAmI }
  from "./client";
import { Problem, to, usePoll, useRoute, type Route } from "./parts";
import { BatchesPage } from "./batches";
import { BatchPage } from "./batch";
import { ApprovalsPage } from "./approvals";
import { ToolsPage } from "./tools";
import { DeadPage, WorkersPage, WorkspacesPage } from "./operations";
import { SystemPage } from "./system";
import { ReportPage } from "./report";

interface Page {
  name: string;
  title: string;
  show: (route: Route, me: Me) => h.JSX.Element;
  /** Whether it is for operators alone. */
  operator?: boolean;
}

const pages: Page[] = [
  { name: "batches", title: "Batches", show: (r) => <BatchesPage route={r} /> },
  { name: "approvals", title: "Approvals", show: (r, me) => <ApprovalsPage route={r} me={me} /> },
  { name: "tools", title: "Tools", show: (r, me) => <ToolsPage route={r} me={me} /> },
  { name: "report", title: "Report", show: (r, me) => <ReportPage route={r} me={me} /> },
  { name: "workers", title: "Workers", show: () => <WorkersPage /> },
  { name: "workspaces", title: "Workspaces", show: () => <WorkspacesPage />, operator: true },
  { name: "dead", title: "Dead letters", show: () => <DeadPage />, operator: true },
  { name: "system", title: "System", show: () => <SystemPage />, operator: true },
];

type Theme = "auto" | "light" | "dark";
const themeName = "toolyard.theme";

function useTheme(): [Theme, () => void] {
  const [theme, set] = useState<Theme>((localStorage.getItem(themeName) as Theme | null) ?? "auto");
  useEffect(() => {
    document.documentElement.dataset.theme = theme;
    localStorage.setItem(themeName, theme);
  }, [theme]);
  const order: Theme[] = ["auto", "light", "dark"];
  return [theme, () => set(order[(order.indexOf(theme) + 1) % order.length])];
}

function SignIn({ done, failed }: { done: () => void; failed?: Error }) {
  const [error, setError] = useState(failed);
  const where = usePoll(whereToSignIn, 0, []);
  const login = where.data;
  const submit = async (e: SubmitEvent) => {
    e.preventDefault();
    const field = (e.currentTarget as HTMLFormElement).elements.namedItem("token") as HTMLInputElement;
    try {
      await signIn(field.value.trim());
      done();
    } catch (e) {
      setError(e as Error);
    }
  };
  return <main class="signin">
    <h1>Toolyard</h1>
    {login?.issuer ? <p><button type="button" class="primary" onClick={() => void leaveToSignIn(login).catch(setError)}>
      Sign in at {new URL(login.issuer).host}</button></p> : null}
    <form onSubmit={submit}>
      <label>Token <input name="token" type="password" autocomplete="off" required autofocus /></label>
      <button>Sign in</button>
      <Problem error={error ?? where.error} />
      <p class="hint">A token of the server's token file, or a JWT of its issuer. An operator's token shows all agents;
        any other shows its agent.</p>
    </form>
  </main>;
}

function Frame({ me, leave }: { me: Me; leave: () => void }) {
  const route = useRoute();
  const [theme, turn] = useTheme();
  const here = route.path[0] || "batches";
  const page = pages.find((p) => p.name === here);
  const waiting = usePoll((signal) => get<WaitingCalls>("/v1/waiting", signal), 2000, []);
  const n = waiting.data?.calls ?? 0;
  const title = here === "batch" ? `Batch ${route.path[2] ?? ""}` : page?.title ?? "Not found";
  useEffect(() => {
    document.title = `${n ? `(${n}) ` : ""}${title} · Toolyard`;
  }, [n, title]);
  return <div class="frame">
    <a class="skip" href="#main" onClick={(e) => {
      e.preventDefault();
      document.getElementById("main")?.focus();
    }}>Skip to the page</a>
    <header>
      <a class="brand" href={to(["batches"])}>Toolyard</a>
      <nav aria-label="Pages"><ul>{pages.filter((p) => !p.operator || me.operator).map((p) =>
        <li key={p.name}><a href={to([p.name])} aria-current={p.name === here ? "page" : undefined}>{p.title}
          {p.name === "approvals" && n > 0 ? <span class="badge" aria-label={`${n} wait`}>{n}</span> : null}</a></li>)}
      </ul></nav>
      <div class="who">
        <span>{me.operator ? "operator" : `agent ${me.agent}`}{me.asks && me.name !== me.agent ? ` (${me.name})` : ""}
        </span>
        <button type="button" onClick={turn} aria-label={`Colours: ${theme}`}>{theme}</button>
        {me.asks ? <button type="button" onClick={leave}>Sign out</button> : null}
      </div>
    </header>
    <main id="main" tabIndex={-1}>
      {here === "batch" ? <BatchPage key={route.path.join("/")} route={route} /> : page ? page.show(route, me) :
        <><h1>Not found</h1><p>There is no such page.</p></>}
    </main>
  </div>;
}

function App() {
  const [me, setMe] = useState<Me | null>();
  const [error, setError] = useState<Error>();
  const [failed, setFailed] = useState<Error>();
  const look = async () => {
    try {
      setMe(await whoAmI());
      setError(undefined);
    } catch (e) {
      if (e instanceof Failed && e.status === 401) setMe(null);
      else setError(e as Error);
    }
  };
  useEffect(() => {
    whenSignedOut(() => setMe(null));
    void comeBack().catch(setFailed).then(look);
  }, []);
  if (error) return <main class="signin"><h1>Toolyard</h1><Problem error={error} />
    <button type="button" onClick={look}>Try again</button></main>;
  if (me === undefined) return null;
  if (me === null) return <SignIn done={look} failed={failed} />;
  const leave = () => void signOut().catch(() => {}).then(onSignedOut);
  return <Frame me={me} leave={leave} />;
}

render(<App />, document.getElementById("app")!);
