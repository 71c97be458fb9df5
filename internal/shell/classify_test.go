package shell

import (
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
)

// Each case has a word or two that must stand in the reason, so that a command is not refused for another reason than
// the one that the case is about.
type classified struct{ command, why string }

var readOnly = []classified{
	// plain
	{"ls", "ls"}, {"ls -la", "ls"}, {"ls -la /tmp/x y", "ls"}, {"  ls  ", "ls"}, {"pwd", "pwd"}, {"cat a b", "cat"},
	{"head -20 f", "head"}, {"tail -n +5 f", "tail"}, {"tail -f log", "tail"}, {"wc -l < f", "wc"},
	{"du -sh .", "du"},
	{"df -h", "df"}, {"stat f", "stat"}, {"true", "true"}, {":", ":"}, {"sleep 1", "sleep"}, {"which go", "which"},
	{"type ls", "type"}, {"command -v go", "command"}, {"env", "env"}, {"date", "date"}, {"date -u +%F", "date"},
	{"date -d yesterday +%s", "date"}, {"date --date=yesterday", "date"}, {"diff a b", "diff"}, {"cmp a b", "cmp"},
	{"basename /a/b .c", "basename"}, {"tr a-z A-Z", "tr"}, {"cut -d, -f1 f", "cut"}, {"jq .a f.json", "jq"},
	{"exit 0", "exit"},
	// programs with options that write
	{"grep -rn 'rm x' .", "grep"}, {"rg -n --hidden foo src", "rg"}, {"rg -tgo -A3 'x|y'", "rg"},
	{"rg foo src/*", "rg"},
	{"find . -name '*.go' -type f", "find"}, {`find . \( -name a -o -name b \) -prune`, "find"},
	{"find . -mtime -7 -size +10k", "find"}, {"find src -newermt 2024-01-01 -print0", "find"},
	{"find . -printf '%p\n'", "find"}, {"sort f", "sort"}, {"sort -t, -k2,2nr f", "sort"},
	{"sort --reverse --key=2 f", "sort"},
	{"sort -u src/*.txt", "sort"}, {"uniq", "uniq"}, {"uniq -c f", "uniq"}, {"uniq -f 1 f", "uniq"},
	{"file -b f", "file"},
	{"sed -n 10,20p f", "sed"}, {"sed -n '5p' f g", "sed"}, {"sed -n '5,$p' f", "sed"},
	{`printf '%s\n' a b`, "printf"},
	{`printf -- '%5.2f%%' 1`, "printf"},
	// git and go
	{"git status", "git"}, {"git status -sb --porcelain", "git"}, {"git --no-pager log --oneline -5", "git"},
	{"git log -p -n 3 -- src/a.go", "git"}, {"git log --format='%h %s' main..dev", "git"},
	{"git diff HEAD~1 --stat", "git"},
	{"git diff --no-index a b", "git"}, {"git show HEAD:f", "git"}, {"git branch", "git"},
	{"git branch -a -v", "git"},
	{"git branch --list 'x*'", "git"}, {"git branch --contains abc", "git"}, {"git branch --show-current", "git"},
	{"git branch --sort=-committerdate", "git"}, {"git rev-parse --show-toplevel", "git"},
	{"git rev-parse HEAD", "git"},
	{"git ls-files -m", "git"}, {"git blame -L 1,5 f", "git"}, {"git remote -v", "git"}, {"git grep -n foo", "git"},
	{"git cat-file -p HEAD", "git"}, {"git ls-tree -r HEAD", "git"}, {"git show 'HEAD@{1}'", "git"},
	{"go version", "go"},
	{"go env GOPATH", "go"}, {"go list -m all", "go"}, {"go list ./...", "go"}, {"go doc fmt.Println", "go"},
	// everyday forms
	{"git tag", "git"}, {"git tag -l 'v1*' --sort=-v:refname", "git"}, {"git tag --list", "git"},
	{"git stash list", "git"}, {"git stash list -p --stat", "git"}, {"git reflog", "git"},
	{"git reflog show -n 5 main", "git"}, {"git describe --tags --dirty", "git"},
	{"git rev-list --count main..HEAD", "git"}, {"git merge-base main HEAD", "git"}, {"git shortlog -sn HEAD", "git"},
	{"git show-ref --heads", "git"}, {"git check-ignore -v a", "git"}, {"git worktree list", "git"},
	{"git config --get user.name", "git"}, {"git config --list --show-origin", "git"}, {"git --version", "git"},
	{"git config --global --get-regexp '^user'", "git"}, {"git for-each-ref --sort=-committerdate refs/heads", "git"},
	{"git branch --format='%(refname:short)'", "git"}, {"git count-objects -vH", "git"},
	{"git for-each-ref --format='%(refname)' --count=3", "git"},
	{"sed -n '/^func/p' f", "sed"}, {"sed -n '1,5p;10p' f", "sed"}, {"sed -n -e 5p -e '7,$p' f", "sed"},
	{"sed 's/a/b/' f", "sed"}, {"ls | sed -E 's/(a|b)+;/\\/\\1/gI'", "ls, sed"}, {"sed '/^#/d' f", "sed"},
	{"sed 5q f", "sed"}, {"sed -n '/[^a-z]/p;s/[0-9]*//gp' f", "sed"}, {"sed '$!d' f", "sed"},
	{"sed -ne '/a/,/b/p' f", "sed"}, {"sed -n '5,+3p; /x/!p; $=' f", "sed"},
	{"tree -a -L 2 -I 'node_modules|.git' --dirsfirst", "tree"}, {"tree src", "tree"}, {"base64 -d f", "base64"},
	{"b2sum f", "b2sum"}, {"expr 1 + 2", "expr"}, {"hexdump -C f", "hexdump"}, {"column -t -s, f", "column"},
	{"sha384sum f | cut -c1-8", "cut, sha384sum"}, {"numfmt --to=iec 1024", "numfmt"}, {"groups", "groups"},
	{"uptime", "uptime"}, {"free -m", "free"}, {"printenv PATH", "printenv"}, {"hostname", "hostname"},
	{"arch", "arch"},
	{"python3 --version", "python3"}, {"node -v", "node"}, {"[ \"$x\" -gt 3 ] && ls", "[, ls"},
	{"test \"$x\" -le 1", "test"}, {"[ ! \"$x\" -eq 1 ]", "["},
	// joined
	{"ls | wc -l", "ls, wc"}, {"ls && pwd || true; echo x", "echo, ls, pwd, true"}, {"ls\npwd\n", "ls, pwd"},
	{"(ls; pwd)", "ls, pwd"}, {"{ ls; pwd; }", "ls"}, {"! ls", "ls"}, {"time ls", "ls"}, {"ls |& cat", "cat, ls"},
	{"if [ -f a ]; then cat a; elif test -d b; then ls; else pwd; fi", "[, cat"},
	{"for f in a b; do cat $f; done", "cat"},
	{"for f in *.go; do wc -l \"$f\"; done", "wc"}, {"while true; do date; sleep 1; done", "date"},
	{"until false; do break; done", "break"}, {"case $x in a) ls;; *) pwd;; esac", "ls, pwd"},
	{"[[ -f a && $x == b* ]]", "[["},
	{"[ ! -f \"$x\" ] && ls", "[, ls"}, {"[ \"$x\" = y ]", "["},
	{"for f in *; do [ -d \"$f\" ] && echo ${f##*/}; done", "[, echo"},
	// behind others
	{"timeout 60 ls -la", "ls, timeout"}, {"timeout -k 5 --signal=KILL 1.5m grep -rn x .", "grep, timeout"},
	{"nice -n 19 ls | wc", "ls, nice, wc"},
	{"nice ls", "ls"}, {"stdbuf -oL -e 0 tail -f log", "stdbuf, tail"},
	{"timeout 5 nice -5 du -sh .", "du, nice, timeout"},
	// redirections
	{"ls 2>&1", "ls"}, {"ls >/dev/null 2>&1", "ls"}, {"ls &>/dev/null", "ls"}, {"ls 2>>/dev/null", "ls"},
	{"cat < f", "cat"},
	{"cat <&0", "cat"}, {"cat <<EOF\nrm x\nEOF", "cat"}, {"cat <<'EOF'\n$(rm x)\nEOF", "cat"},
	{"cat <<-EOF\n\tx $y\n\tEOF\n", "cat"}, {"wc -w <<< 'a b'", "wc"}, {"ls 2>&-", "ls"},
	// quotes, escapes, expansions
	{`l\s`, "ls"}, {`'ls' "-l"`, "ls"}, {`l""s`, "ls"}, {"ls \\\n -l", "ls"}, {"ls # rm x", "ls"}, {"# list\nls", "ls"},
	{`echo "rm x; rm y"`, "echo"}, {`echo 'a > b'`, "echo"}, {`echo \; rm x`, "echo"}, {`echo \> f`, "echo"},
	{"echo $HOME ~ {a,b} *", "echo"}, {"echo $(pwd)", "echo, pwd"},
	{`cat "$(git ls-files | head -1)"`, "cat, git, head"},
	{"diff <(sort a) <(sort b)", "diff, sort"}, {"echo $'\\x72m'", "echo"}, {"cat $(< f)", "cat"}, {"echo ｌｓ", "echo"},
	{"echo ${x:-$(pwd)}", "echo, pwd"}, {"grep -c x $f", "grep"}, {"echo \"${#x}\"", "echo"},
}

var unsafe = []classified{
	// nothing, or no shell
	{"", "no command"}, {"   ", "no command"}, {"# only a comment", "no command"}, {"\n\n", "no command"},
	{"ls \x00", "control character"}, {"ls\r\nrm x", "control character"}, {"ls \x1b[0m", "control character"},
	{"ls \xff", "UTF-8"}, {"ls 'x", "parse"}, {"ls )", "parse"}, {"ls &&", "parse"}, {"ls $(", "parse"},
	{"if ls", "parse"},
	{strings.Repeat("ls;", 20000), "bytes long"}, {"< f", "no command"}, {"cat <<EOF\nx", "parse"},
	// programs
	{"rm x", `"rm"`}, {"/bin/ls", `"/bin/ls"`}, {"./ls", `"./ls"`}, {"l s", `"l"`}, {"ｌｓ", "not known"},
	{"lѕ", "not known"},
	{"LS", "not known"}, {"tee f", `"tee"`}, {"touch f", `"touch"`}, {"xargs rm", `"xargs"`},
	{"sudo ls", `"sudo"`}, {"eval ls", `"eval"`}, {"exec ls", `"exec"`}, {". ./f", `"."`}, {"source f", `"source"`},
	{"sh -c ls", `"sh"`}, {"bash -c 'ls'", `"bash"`}, {"env ls", "no arguments"}, {"env X=1", "no arguments"},
	{"command ls", "runs its arguments"}, {"builtin ls", `"builtin"`}, {"nohup ls", `"nohup"`},
	{"python -c 1", "--version"},
	{"awk 1", `"awk"`}, {"less f", `"less"`}, {"read PATH", `"read"`}, {"unset x", `"unset"`}, {"set -e", `"set"`},
	{"alias ls=rm", `"alias"`}, {"shopt -s x", `"shopt"`}, {"trap ls EXIT", `"trap"`}, {"'ls rm'", `"ls rm"`},
	{"ls-rm", "not known"}, {"hash -p /tmp/x ls", `"hash"`}, {"enable -f x ls", `"enable"`},
	{"mapfile x", `"mapfile"`},
	{"exit $x", "number"}, {"yes > f", "may write"},
	// arguments
	{"find . -delete", "-delete"}, {"find . -exec rm {} +", "-exec"}, {"find . -execdir ls ';'", "-execdir"},
	{"find . -ok ls ';'", "-ok"}, {"find . -okdir ls ';'", "-okdir"}, {"find . -fprint f", "-fprint"},
	{"find . -fprintf f x", "-fprintf"}, {"find . -fls f", "-fls"}, {"find . -fprint0 f", "-fprint0"},
	{"find $d -name x", "not literal"}, {"find . -name *", "not literal"}, {`find . -d'e'lete`, "-delete"},
	{`find . \-delete`, "-delete"}, {"find . {-delete,}", "not literal"}, {`find . $'-delete'`, "not literal"},
	{"find \"$d\"", "not literal"}, {"find . -files0-from f", "-files0-from"}, {"find -- . -delete", "--"},
	{"sort -o f g", "-o"}, {"sort -of", "-of"}, {"sort -no f", "-no"}, {"sort f -o f", "-o"},
	{"sort --output=f", "--output=f"},
	{"sort --out=f", "--out=f"}, {"sort --o f", "--o"}, {"sort --compress-program=x", "--compress-program"},
	{"sort --comp x", "--comp"}, {"sort -T . f", "-T"}, {"sort $x", "not literal"}, {"sort *", "not literal"},
	{"sort -- -o", "-o"}, {"sort -k -- -o f", "-o"}, {"sort -k 1 -o f", "-o"}, {"sort -o* f", "not literal"},
	{"uniq a b", "second operand"}, {"uniq -c a b", "second operand"}, {"uniq *", "not literal"},
	{"uniq $x", "not literal"},
	{"uniq src/*", "not literal"}, {"uniq -f 1 a b", "second operand"}, {"uniq -- -f 1", "--"},
	{"uniq - b", "second operand"},
	{"file -C", "-C"}, {"file --compile", "--compile"}, {"file --comp", "--comp"}, {"file -bC", "-bC"},
	{"rg --pre=x y", "--pre"}, {"rg --pre x y", "--pre"}, {"rg -z x", "-z"}, {"rg -iz x", "-iz"},
	{"rg --search-zip x", "--search-zip"}, {"rg --hostname-bin=x y", "--hostname-bin"}, {"rg x *", "not literal"},
	{"rg \"$x\"", "not literal"}, {"date -s x", "-s"}, {"date --set=x", "--set"}, {"date --se=x", "--se"},
	{"date 01010000", "clock"}, {"date -d -r 01010000", "clock"}, {"date -u 0101", "clock"},
	{"date -- 0101", "clock"},
	{"date $x", "not literal"}, {"printf -v PATH x", "format"}, {"printf %n PATH", "conversion"},
	{"printf '%s%5n' x PATH", "conversion"}, {"printf $x", "format"}, {"printf '%'", "conversion"},
	{"sed -i s/a/b/ f", "sed"},
	{"sed s/a/b/w f", "sed"}, {"sed -n 'w f' g", "sed"}, {"sed -n 1p -i f", "-i"}, {"sed -n '1e rm' f", "sed"},
	{"sed -n 1p *", "not literal"}, {"sed -n 1,p f", "sed"}, {"[ -v 'a[$(rm x)]' ]", "-v"}, {"test -v x", "-v"},
	{"[ 'a[$(rm x)]' -eq 0 ]", "evaluated"}, {"[ $x ]", "not literal"}, {"[ * ]", "not literal"},
	{`[ "$x" "$y" ]`, "operators"}, {"[ -f x", `"]"`}, {`[ "$x" -a "$y" -o z ]`, "operators"}, {"[[ -v x ]]", "-v"},
	{"[[ $x -eq 1 ]]", "-eq"}, {"[[ $x =~ y ]]", "=~"},
	// git and go
	{"git", "subcommand"}, {"git commit -m x", "commit"}, {"git -c core.pager=x log", "-c"},
	{"git -C /x status", "-C"},
	{"git --git-dir=x status", "--git-dir"}, {"git --exec-path=x status", "--exec-path"}, {"git -p log", "-p"},
	{"git $x", "literal"}, {"git log --output=f", "--output"}, {"git log --outp=f", "--outp"},
	{"git diff --ext-diff", "--ext-diff"}, {"git diff --ext", "--ext"}, {"git show --textconv", "--textconv"},
	{"git log --show-signature", "--show-signature"}, {"git log '--format=%G?'", "%G"}, {"git diff -Ox", "-Ox"},
	{"git grep -O x", "-O"}, {"git grep -nOless x", "-nOless"},
	{"git grep --open-files-in-pager=x y", "--open-files"},
	{"git branch x", "branch to make"}, {"git branch -d x", "-d"}, {"git branch -D x", "-D"},
	{"git branch -a x", "branch to make"}, {"git branch -v x", "branch to make"}, {"git branch -m a b", "-m"},
	{"git branch --edit-description", "--edit"}, {"git branch --sort --list x", "--sort"},
	{"git branch --contains --list x", "--list"}, {"git branch -- x", "branch to make"},
	{"git branch -- x --list", "branch to make"}, {"git branch x -- --list", "branch to make"},
	{"git branch --list $x", "not literal"}, {"git blame --output=f x", "--output"},
	{"git remote add x y", "operand"},
	{"git remote update", "operand"}, {"git status $x", "not literal"}, {"git diff *", "not literal"},
	{"git stash", "stash"},
	{"git checkout x", "checkout"}, {"git cat-file --textconv x", "--textconv"}, {"git config x y", "config"},
	{"go build", "build"}, {"go env -w X=1", "-w"}, {"go env --w X=1", "--w"}, {"go env -u X", "-u"},
	{"go list -toolexec=x", "-toolexec"}, {"go list -export x", "-export"}, {"go list -mod=mod", "-mod"},
	{"go list $x", "literal"}, {"go -C x list", "-C"}, {"go run .", "run"}, {"go vet", "vet"},
	{"go doc -http", "-http"},
	// what is like the everyday forms
	{"git tag x", "tag"}, {"git tag -d x", "-d"}, {"git tag -l -d x", "-d"}, {"git tag -- -l", "--"},
	{"git tag --sort -l x", "--sort"}, {"git tag -a x -l", "-a"}, {"git tag -l $x", "not literal"},
	{"git tag -lf x", "-lf"},
	{"git tag -l --format='%(signature)'", "--format"}, {"git tag -l --sort=signature", "signature"},
	{"git tag --lis x", "--lis"}, {"git tag -v x", "-v"},
	{"git branch --sort=signature", "signature"}, {"git branch --format='%(signature:grade)'", "signature"},
	{"git branch --format --list x", "--format"}, {"git branch --sort=-Signature:key", "ignature"},
	{"git for-each-ref --format='%(SIGNATURE)'", "SIGNATURE"}, {"git for-each-ref --sort=signature:key", "signature"},
	{"git for-each-ref --sort signature", "--sort"}, {"git for-each-ref --exec=x", "--exec"},
	{"git stash", "stash"}, {"git stash list --output=f", "--output"}, {"git stash lis", "lis"},
	{"git stash -- list", "stash"},
	{"git stash list --format=%GS", "%GS"}, {"git stash pop list", "stash"}, {"git stash $x", "stash"},
	{"git reflog expire --all", "reflog"}, {"git reflog delete x", "reflog"}, {"git reflog -n 1 expire", "reflog"},
	{"git reflog show --output=f", "--output"}, {"git describe --broken", "--broken"},
	{"git rev-list --exec=x", "--exec"},
	{"git rev-list '--format=%G?' HEAD", "--format"}, {"git show-ref --exclude-existing", "--exclude"},
	{"git shortlog --output=f", "--output"}, {"git shortlog --format=%GS", "--format"},
	{"git worktree add x", "worktree"},
	{"git worktree list add x", "operand"}, {"git worktree prune", "worktree"},
	{"git config user.name", "config"}, {"git config a.b c", "config"}, {"git config --get --unset a", "--unset"},
	{"git config --get --file f a.b", "--file"}, {"git config --add a.b c", "config"}, {"git config -e", "config"},
	{"git config --get -e", "-e"},
	{"git config --ge a", "--ge"}, {"git config get a", "config"}, {"git config --get $x", "not literal"},
	{"git config --global", "config"}, {"git --version x", "version"},
	{"sed 's/a/b/w f' g", "sed"}, {"sed 's/a/b/e' g", "sed"}, {"sed 's/a/b/ge' g", "sed"},
	{"sed 's/a/b/gw f' g", "sed"},
	{"sed 's/a/b/;w f' g", "sed"}, {"sed '/a/w f' g", "sed"}, {"sed 's/a\\/b/c/w f' g", "sed"}, {"sed e g", "sed"},
	{"sed -n '/a/e' g", "sed"}, {"sed 's/[/]/b/w f' g", "sed"}, {"sed 's,a,b,' f", "sed"}, {"sed -i 5q f", "-i"},
	{"sed -ni 5p f", "-ni"}, {"sed -nf f g", "-nf"}, {"sed -f f g", "-f"}, {"sed 5q f -i", "-i"},
	{"sed --in-place 5q f", "--in"},
	{"sed -e 5q -i f", "-i"}, {"sed -e", "sed"}, {"sed -ns 5p f", "-ns"}, {"sed 's/a/b/\nw f' g", "sed"},
	{"sed $x f", "sed"},
	{"sed 's/a\n/b/' f", "sed"}, {"sed '1r f' g", "sed"}, {"sed 'y/a/b/' f", "sed"}, {"sed '1a x' f", "sed"},
	{"sed '5W f' g", "sed"}, {"sed '5{p;w f\n}' g", "sed"}, {"sed -s 5q f", "-s"}, {"sed '5q;e' f", "sed"},
	{"sed -e 5q *", "not literal"}, {"sed 's/[/]/g;s/p;w f/x/' g", "sed"}, {"sed -n 's/a/b/pe' f", "sed"},
	{"sed 's/a/b/M;e' f", "sed"},
	{"tree -o f", "-o"}, {"tree -Lo 2 f", "-Lo"}, {"tree -R -H . -L 2", "-R"}, {"tree -L2o f", "-L2o"},
	{"tree --output f", "--output"},
	{"tree $x", "not literal"}, {"tree *", "not literal"}, {"base64 -o f", "-o"}, {"base64 --output=f", "--output"},
	{"arch -arm64 rm x", "no arguments"},
	{"hostname x", "no arguments"}, {"hostname -F f", "no arguments"}, {"python3 --version x", "python3"},
	{"python3 x --version", "python3"}, {"node", "node"}, {"node -v x", "node"}, {"python3 -V", "python3"},
	{"[ \"$x\" -eq ]", "operators"}, {"[[ \"$x\" -gt 1 ]]", "-gt"},
	// behind others
	{"timeout 60 rm x", `"rm"`}, {"timeout ls", `"timeout"`}, {"timeout $x ls", `"timeout"`},
	{"timeout -x 5 ls", `"timeout"`}, {"timeout 5", `"timeout"`},
	{"nice -n 5 sh -c ls", `"sh"`}, {"stdbuf -oL", `"stdbuf"`}, {"timeout 5 env ls", "no arguments"},
	{"timeout --x=5 5 ls", `"timeout"`},
	{"cd x && git status", "beside a cd"}, {"git log; cd x", "beside a cd"}, {"(cd x; go list)", "beside a cd"},
	{"cd x && rm y", `"rm"`},
	{"cd $(rm x)", `"rm"`},
	// joined
	{"ls;rm x", `"rm"`}, {"ls && rm x", `"rm"`}, {"ls || rm x", `"rm"`}, {"ls | sh", `"sh"`}, {"ls\nrm x", `"rm"`},
	{"ls # c\nrm x", `"rm"`}, {"ls & rm x", "background"}, {"ls &", "background"}, {"(ls; rm x)", `"rm"`},
	{"{ rm x; }", `"rm"`}, {"! rm x", `"rm"`}, {"time rm x", `"rm"`}, {"if rm x; then ls; fi", `"rm"`},
	{"if ls; then rm x; fi", `"rm"`}, {"if ls; then ls; elif rm x; then ls; fi", `"rm"`},
	{"if ls; then ls; else rm x; fi", `"rm"`}, {"while rm x; do ls; done", `"rm"`},
	{"while ls; do rm x; done", `"rm"`},
	{"for f in a; do rm $f; done", `"rm"`}, {"for f in $(rm x); do ls; done", `"rm"`},
	{"for PATH in /tmp/evil; do ls; done", "PATH"}, {"for ((i=0;i<3;i++)); do ls; done", "loop"},
	{"select f in a; do ls; done", "loop"}, {"case $(rm x) in a) ls;; esac", `"rm"`},
	{"case a in a) rm x;; esac", `"rm"`},
	{"case a in $(rm x)) ls;; esac", `"rm"`}, {"ls() { rm x; }", "function"}, {"function ls { rm x; }", "function"},
	{"coproc ls", "coprocess"}, {"(ls) > f", "may write"}, {"{ ls; } 2> f", "may write"},
	{"if ls; then ls; fi > f", "may write"},
	// redirections
	{"ls > f", "may write"}, {"ls >> f", "may write"}, {"ls >| f", "may write"}, {"ls &> f", "may write"},
	{"ls &>> f", "may write"}, {"ls >& f", "may write"}, {"ls 2> f", "may write"}, {"> f", "may write"},
	{"ls <> f", "may write"}, {"ls > $f", "may write"}, {"ls > /dev/null/../f", "may write"},
	{"ls {fd}> /dev/null", "sets a variable"}, {"cat < /dev/tcp/host/80", "plain file"}, {"cat < $f", "plain file"},
	{"cat < *", "plain file"}, {"cat <<EOF\n$(rm x)\nEOF", `"rm"`}, {"cat <<EOF\n`rm x`\nEOF", "backquotes"},
	{"cat <<< $(rm x)", `"rm"`}, {"cat <<E\"O\"F\nx\nEOF", "delimiter"},
	{"echo $(cat <<EOF\nEOF)\nrm x\nEOF\n)", "substitution"}, {"cat <(rm x)", `"rm"`},
	{"ls >(rm x)", "process substitution"},
	{"ls > >(cat)", "may write"}, {"ls >&$x", "expanded"},
	// assignments and expansions
	{"x=1", "sets a variable"}, {"PATH=. ls", "sets a variable"}, {"x=$(ls)", "sets a variable"},
	{"x+=1 ls", "sets a variable"}, {"a[0]=1", "sets a variable"}, {"export X=1", "export"}, {"declare x", "declare"},
	{"local x", "local"}, {"readonly x", "readonly"}, {`\export X=1`, `"export"`}, {"$cmd", "not literal"},
	{"\"$cmd\" x", "not literal"}, {"l$x", "not literal"}, {"$(echo rm) x", "not literal"}, {"{rm,x}", "not literal"},
	{"$'rm' x", "not literal"}, {"$\"ls\"", "not literal"}, {"l?", "not literal"}, {"~/ls", "not literal"},
	{"*", "not literal"}, {"ls $(rm x)", `"rm"`}, {"ls \"$(rm x)\"", `"rm"`}, {"ls `rm x`", "backquotes"},
	{"ls `pwd`", "backquotes"}, {"ls $(ls $(rm x))", `"rm"`}, {"echo ${x:=y}", "parameter"},
	{"echo ${x:-$(rm y)}", `"rm"`},
	{"echo ${!x}", "parameter"}, {"echo ${x@P}", "parameter"}, {"echo ${a[$(rm x)]}", "parameter"},
	{"echo ${x:0:1}", "parameter"}, {"echo ${x:?y}", "parameter"}, {"echo ${x/a/b}", "parameter"},
	{"echo $((x))", "arithmetic"}, {"echo $((x=1))", "arithmetic"}, {"((x++))", "arithmetic"},
	{"let x=1", "arithmetic"},
	{"echo $[1]", "arithmetic"}, {"echo @(a|b)", "expansion"}, {"echo ${ rm x; }", ""},
	{"ls $(x=1; ls)", "sets a variable"},
	{"echo \"$(ls &)\"", "background"},
}

func TestClassify(t *testing.T) {
	t.Logf("%d read-only, %d unsafe", len(readOnly), len(unsafe))
	for _, tc := range readOnly {
		if class, why := Classify(tc.command); class != toolyard.ReadOnly || !strings.Contains(why, tc.why) {
			t.Errorf("Classify(%q) = %s, %q; want READ_ONLY for %q", tc.command, class, why, tc.why)
		}
	}
	for _, tc := range unsafe {
		class, why := Classify(tc.command)
		if class != toolyard.Unsafe || !strings.Contains(why, tc.why) || why == "" {
			t.Errorf("Classify(%.100q) = %s, %q; want UNSAFE for %q", tc.command, class, why, tc.why)
		}
	}
}

// TestClassifyBehindACd: where a command runs does not say that it writes.
func TestClassifyBehindACd(t *testing.T) {
	for _, command := range []string{"cd src", "cd src && ls", "cd /ws/src; cat a | head -3", `cd "$d" && grep -rn x .`,
		"(cd a && ls); (cd b && ls)"} {
		if class, why := Classify(command); class != toolyard.ReadOnly {
			t.Errorf("Classify(%q) = %s, %q", command, class, why)
		}
	}
}
