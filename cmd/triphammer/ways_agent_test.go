package main

import (
	"bytes"
	"context"
	bits "encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// way is something that the agent of TestWaysOut must not get done. try returns what the agent is told.
type way struct {
	name string
	try  func(*wayAgent) string
	want string // part of what it is told
}

// wayAgent is the hostile agent of TestWaysOut in its run.
type wayAgent struct {
	gateway, path, bearer string // the address, the path of the repository there, and the header with the token
	forge                 string // HOST:PORT of the forge
	outputs, mcp, token   string
	main, theirs          string // objects of the forge
	asked                 int
}

// Words of the refusals that come more than once.
const (
	noMain   = "default branch only if"
	noRef    = "is no name of a branch or tag"
	noOther  = "a run pushes to triphammer/*"
	noPlace  = "a run pushes branches"
	noPush   = "the request is no push of Git"
	noRepo   = "this gateway has no such repository"
	noField  = "no JSON object of the known fields"
	zeroID   = "0000000000000000000000000000000000000000"
	canRefer = "\x00 report-status side-band-64k"
)

// ways are all ways. Those that use something up come last.
var ways = []way{
	{"push to main", pushing("HEAD:main"), noMain},
	{"push to main by its full name", pushing("+HEAD:refs/heads/main"), noMain},
	{"push to MAIN", pushing("HEAD:refs/heads/MAIN"), noMain},
	{"push to HEAD", pushing("HEAD:refs/heads/HEAD"), noOther},
	{"push to a symbolic ref", pushing("HEAD:refs/remotes/origin/HEAD"), noPlace},
	{"push for review", pushing("HEAD:refs/for/main"), noPlace},
	{"push a replacement", pushing("HEAD:refs/replace/" + zeroID[:39] + "1"), noPlace},
	{"push notes", pushing("HEAD:refs/notes/commits"), noPlace},
	{"push to another branch", pushing("HEAD:release"), noOther},
	{"push with an option", pushing("-o", "merge_request.create", "HEAD:triphammer/x"), "no options of a push"},
	{"delete a branch", pushing(":triphammer/theirs"), "a run deletes nothing"},
	{"rewrite a branch", pushing("-f", "HEAD:triphammer/theirs"), "does not rewrite what"},
	{"push a tag", pushing("HEAD:refs/tags/v9"), "a run pushes no tag"},
	{"push all", pushing("--all"), noMain},
	{"push a mirror", pushing("--mirror"), "(a run "},
	{"push four branches", pushing("HEAD:triphammer/1", "HEAD:triphammer/2", "HEAD:triphammer/3", "HEAD:triphammer/4"), "push.max of the automation: 3"},
	{"push to the other name of the remote", func(a *wayAgent) string {
		return a.git("push", "http://"+a.forge+"/acme/api", "HEAD:main")
	}, noMain},
	{"push to the gateway itself", func(a *wayAgent) string { return a.git("push", "http://"+a.gateway+a.path+".git", "HEAD:main") }, noMain},
	{"push a submodule elsewhere", func(a *wayAgent) string {
		return a.git("push", "http://"+a.forge+"/acme/other.git", "HEAD:main")
	}, "unable to access"},

	{"write HEAD", commanding("HEAD"), noRef},
	{"write what a tag points to", commanding("refs/heads/main^{}"), noRef},
	{"go up in a name", commanding("refs/heads/triphammer/../main"), noRef},
	{"write two slashes", commanding("refs/heads//main"), noRef},
	{"write a name with line breaks", commanding("refs/heads/main\n\n"), noRef},
	{"write another folder", commanding("refs/HEADS/main"), noPlace},
	{"write the same twice", func(a *wayAgent) string {
		return a.pack(line(zeroID+" "+a.main+" refs/heads/triphammer/x"+canRefer)+line(zeroID+" "+a.main+" refs/heads/triphammer/x"), noObjects)
	}, "pushed twice at once"},
	{"hide main behind an own branch", func(a *wayAgent) string {
		return a.pack(line(zeroID+" "+a.main+" refs/heads/triphammer/x"+canRefer)+line(zeroID+" "+a.main+" refs/heads/main"), noObjects)
	}, noMain},
	{"sign a push", func(a *wayAgent) string {
		return a.pack(line("push-cert"+canRefer)+line("certificate version 0.1\n"), noObjects)
	}, "a run signs no push"},
	{"claim a shallow history", func(a *wayAgent) string {
		return a.pack(line("shallow "+a.main)+line(a.theirs+" "+a.main+" refs/heads/triphammer/theirs"+canRefer), noObjects)
	}, "does not rewrite what"},
	{"leave out the end of the commands", func(a *wayAgent) string {
		return a.post(a.path+".git/git-receive-pack", line(zeroID+" "+a.main+" refs/heads/main"+canRefer))
	}, noPush},
	{"send a pack whose parents are missing", func(a *wayAgent) string {
		return a.pack(line(a.theirs+" "+zeroID[:39]+"1 refs/heads/triphammer/theirs"+canRefer), noObjects)
	}, "does not rewrite what"},

	{"a dot that is written as %2e", func(a *wayAgent) string { return a.command(strings.Replace(a.path, "/api", "/api%2egit", 1)) }, noMain},
	{".git twice", func(a *wayAgent) string { return a.command(a.path + ".git/.git") }, "fetch and to push with Git, not for"},
	{"other ways to write the path", func(a *wayAgent) string {
		for _, path := range []string{
			"HOST/acme/api/git-receive-pack", "HOST/acme/api.git//git-receive-pack", "HOST/acme//api.git/git-receive-pack", "HOST//acme/api.git/git-receive-pack", "/HOST/acme/api.git/git-receive-pack",
			"HOST/acme/api.git/%67it-receive-pack", "HOST/acme/api.git%2fgit-receive-pack", "HOST/acme/%61pi.git/git-receive-pack", "HOST/acme/api.git/./git-receive-pack", "HOST/acme/api.git/x/../git-receive-pack",
			"HOST/acme/api.git/%2e%2e/api.git/git-receive-pack", "HOST/acme/api.git/../other.git/git-receive-pack", "HOST/ACME/API.GIT/git-receive-pack", "HOST/acme/api.GIT/git-receive-pack", "HOST/acme/api.git/git-receive-pack/",
			"HOST/acme/api.git/GIT-RECEIVE-PACK", "HOST/acme/api.git/git-receive-pack%00", "HOST/acme/api.git.git/git-receive-pack", "HOST/acme/api.git/info/refs?service=git-upload-pack", "HOST/acme/api.git/info/refs?service=git-receive-pack",
		} {
			said := a.raw(a.head("POST", strings.Replace(path, "HOST", "/"+a.forge, 1), a.gateway, "") + a.mainLine())
			if !strings.HasPrefix(said, "HTTP/1.1 4") && !strings.Contains(said, noMain) {
				return path + ": " + said
			}
		}
		return "all are refused"
	}, "all are refused"},
	{"another repository in the path", func(a *wayAgent) string { return a.command("/" + a.forge + "/acme/other.git") }, noRepo},
	{"the API in the path", func(a *wayAgent) string { return a.post("/"+a.forge+"/api/v3/repos/acme/api/issues/7/labels", "{}") }, noRepo},
	{"Git LFS", func(a *wayAgent) string { return a.post(a.path+".git/info/lfs/objects/batch", "{}") }, "Git LFS is not passed on"},
	{"another service in the query", func(a *wayAgent) string {
		return a.command(a.path + ".git/git-receive-pack?service=git-upload-pack#")
	}, noMain},
	{"another Host", func(a *wayAgent) string {
		return a.raw(a.head("POST", a.path+".git/git-receive-pack", a.forge, "") + a.mainLine())
	}, noMain},
	{"an absolute address", func(a *wayAgent) string {
		return a.raw(a.head("POST", "http://"+a.forge+"/acme/api.git/git-receive-pack", a.forge, "") + a.mainLine())
	}, noRepo},
	{"CONNECT", func(a *wayAgent) string {
		return a.raw(strings.Replace(a.head("CONNECT", a.forge, a.forge, ""), fmt.Sprint(len(a.mainLine())), "0", 1))
	}, "HTTP/1.1 4"},
	{"HTTP/1.0", func(a *wayAgent) string {
		return a.raw(strings.Replace(a.head("POST", a.path+".git/git-receive-pack", a.forge, ""), "HTTP/1.1", "HTTP/1.0", 1) + a.mainLine())
	}, noMain},
	{"a length and chunks", func(a *wayAgent) string {
		return a.raw(a.head("POST", a.path+".git/git-receive-pack", a.gateway, "Transfer-Encoding: chunked\r\n") + "0\r\n\r\nPOST /acme/api.git/git-receive-pack HTTP/1.1\r\nHost: x\r\n\r\n")
	}, "HTTP/1.1 4"},
	{"two lengths", func(a *wayAgent) string {
		return a.raw(a.head("POST", a.path+".git/git-receive-pack", a.gateway, "Content-Length: 4\r\n") + a.mainLine())
	}, "400 Bad Request"},
	{"a compressed push", func(a *wayAgent) string {
		return a.raw(a.head("POST", a.path+".git/git-receive-pack", a.gateway, "Content-Encoding: gzip\r\n") + a.mainLine())
	}, "a push is not compressed"},
	{"no token", func(a *wayAgent) string {
		return (&wayAgent{gateway: a.gateway, bearer: "Bearer x"}).post(a.path+".git/git-receive-pack", "")
	}, "for Git of that run alone"},

	{"a pull request of a branch of others", opening(`{"title":"T","body":"B","head":"triphammer/theirs"}`), "has pushed a branch"},
	{"a pull request of a fork", opening(`{"title":"T","body":"B","head":"evil:main"}`), "no name of a branch of the repository"},
	{"a pull request with a stranger's field", opening(`{"title":"T","body":"B","head":"triphammer/fix","head_repo":"evil/api"}`), "unknown field"},
	{"a merge", func(a *wayAgent) string { return a.post(a.path+"/pulls/7/merge", "{}") }, "not for"},

	{"a forged kind", files(`{"kind":"approve"}`), `allows no \"approve\"`},
	{"a kind that is not allowed", files(`{"kind":"createIssue","title":"T","body":"B"}`), `allows no \"createIssue\"`},
	{"another subject", files(`{"kind":"comment","body":"B","number":12}`), noField},
	{"another repository", files(`{"kind":"comment","body":"B","repository":"acme/other"}`), "it has no repository"},
	{"another channel", files(`{"kind":"comment","body":"B","channel":"C1"}`), "it has no channel"},
	{"a key twice", files(`{"kind":"addLabels","labels":["triaged"],"labels":["admin"]}`), "labels may not be"},
	{"a kind twice", files(`{"kind":"comment","body":"B","kind":"approve"}`), "allows no"},
	{"a label that looks alike", files(`{"kind":"addLabels","labels":["tri\u0430ged"]}`), "labels may not be"},
	{"a label with what nobody sees", files(`{"kind":"addLabels","labels":["triaged\u200b"]}`), "labels may not be"},
	{"a title of two lines", files(`{"kind":"createPullRequest","title":"T\r\nU","body":"B","head":"triphammer/fix"}`), "more than one line"},
	{"a head of a fork", files(`{"kind":"createPullRequest","title":"T","body":"B","head":"evil:main"}`), "no name of a branch"},
	{"a head that is a ref", files(`{"kind":"createPullRequest","title":"T","body":"B","head":"--upload-pack=x"}`), "no name of a branch"},
	{"deep JSON", files(strings.Repeat(`{"kind":`, 7000)), noField},
	{"deeper JSON", files(strings.Repeat("[", 2_000_000)), "at most 60000"},
	{"a huge text", files(`{"kind":"comment","body":"` + strings.Repeat("x", 30_000) + `"}`), "it may have 24000"},
	{"two requests in a file", files(`{"kind":"comment","body":"B"}{"kind":"close"}`), "something follows"},
	{"a link", putting(func(path string) error { return os.Symlink("/etc/passwd", path) }), "a request is a plain file"},
	{"a pipe", putting(func(path string) error { return syscall.Mkfifo(path, 0o600) }), "a request is a plain file"},
	{"a folder", putting(func(path string) error { return os.Mkdir(path, 0o700) }), "a request is a plain file"},
	{"a close", files(`{"kind":"close"}`), `{"ok":true}`},
	{"another close", files(`{"kind":"close"}`), "close: the automation allows 1 in a run"},
	{"a tool with the token of another run", func(a *wayAgent) string { return a.tool("Bearer "+strings.Repeat("A", 26), "comment", `{"body":"B"}`) }, "for the agent of a run"},
	{"a tool with the token of the gateway", func(a *wayAgent) string { return a.tool(a.bearer, "comment", `{"body":"B"}`) }, "for the agent of a run"},
	{"a tool that is not there", func(a *wayAgent) string { return a.tool("", "createIssue", `{"title":"T","body":"B"}`) }, "unknown tool"},
	{"a tool out of bounds", func(a *wayAgent) string { return a.tool("", "addLabels", `{"labels":["admin"]}`) }, "labels may not be"},
	{"a tool with a huge body", func(a *wayAgent) string { return a.tool("", "comment", `{"body":"`+strings.Repeat("x", 200_000)+`"}`) }, "request body"},
	{"frames of the supervisor", func(a *wayAgent) string { return forgeFrames() }, "frames were written"},

	// What is allowed, and what it must not do.
	{"an own branch", pushing("HEAD:triphammer/fix"), "triphammer/fix"},
	{"a text that mentions, closes, commands and loads", files(wayText), `{"ok":true}`},
	{"a pull request that was not pushed", files(`{"kind":"createPullRequest","title":"not pushed","body":"B","head":"main"}`), `{"ok":true}`}, // it is dropped at the end
	{"a pull request of the own branch", files(`{"kind":"createPullRequest","title":"Fix @you, closes #1 and https://x.example/2","body":"B","head":"triphammer/fix"}`), `{"ok":true}`},
	{"another pull request", files(`{"kind":"createPullRequest","title":"T","body":"B","head":"triphammer/fix"}`), "the automation allows 2 in a run"},
	{"a pull request by the gateway", opening(`{"title":"by the gateway","body":"/close\nCloses #1","head":"triphammer/fix"}`), "https://github.example.com/made/1"},
	{"another pull request by the gateway", opening(`{"title":"T","body":"B","head":"triphammer/fix"}`), "https://github.example.com/made/3"}, // in the place of the one that was asked for
	{"one more pull request by the gateway", opening(`{"title":"T","body":"B","head":"triphammer/fix"}`), "the automation allows 2 in a run"},

	{"a huge pack", func(a *wayAgent) string {
		noise := make([]byte, 1<<20)
		for i := range noise {
			noise[i] = byte(i * i >> 7 * 31)
		}
		file, err := os.Open("/dev/urandom")
		if err == nil {
			_, err = io.ReadFull(file, noise)
		}
		if err = errors.Join(err, os.WriteFile("noise", noise, 0o600)); err != nil {
			return err.Error()
		}
		return a.git("add", "noise") + a.git("commit", "-q", "-m", "noise") + a.git("push", "origin", "HEAD:triphammer/fix")
	}, "push.maxBytes of the automation"},
	{"10,000 files", func(a *wayAgent) string {
		for i := range 10_000 {
			if err := os.WriteFile(filepath.Join(a.outputs, fmt.Sprintf("z%d.json", i)), []byte(`{"kind":"approve"}`), 0o600); err != nil {
				return err.Error()
			}
		}
		for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) { // the folder is read ten times meanwhile
			if answers, _ := filepath.Glob(filepath.Join(a.outputs, "z*.result.json")); len(answers) > 300 {
				return fmt.Sprint(len(answers), " answers")
			}
		}
		return "few answers"
	}, "few answers"},
}

// wayTold is the artifact with what the agent is told.
const wayTold = "told.json"

const wayText = `{"kind":"comment","body":"@everyone @acme/all\n\n/close\n\n@dependabot merge\n\nFixes #1, closes acme/api#2, resolves https://github.com/acme/api/issues/3\n\n![x](https://evil.example/x.png)\n\n<img src=https://evil.example/y.png>\n\n[good](https://evil.example) <!-- triphammer:run_0:0 -->"}`

// tryWays tries all ways, prints what the agent is told, and leaves a process that goes on.
func tryWays(forge string) error {
	a := &wayAgent{forge: forge, outputs: os.Getenv("TRIPHAMMER_OUTPUTS"), token: os.Getenv("TRIPHAMMER_OUTPUTS_TOKEN")}
	to, err := url.Parse(strings.TrimSpace(a.git("remote", "get-url", "origin")))
	if err != nil {
		return err
	}
	a.gateway, a.path = to.Host, strings.TrimSuffix(to.Path, ".git")
	_, a.bearer, _ = strings.Cut(strings.TrimSpace(a.git("config", "--get-urlmatch", "http.extraHeader", to.String())), "Authorization: ")
	a.mcp = mcpAddress()
	a.main, a.theirs = a.id("origin/main"), a.id("origin/triphammer/theirs")
	a.git("commit", "-q", "--allow-empty", "-m", "mine")
	told := make(map[string]string)
	for _, w := range ways {
		told[w.name] = w.try(a)
	}
	text, err := json.Marshal(told)
	if err == nil {
		err = os.WriteFile(filepath.Join(os.Getenv("TRIPHAMMER_ARTIFACTS"), wayTold), text, 0o600)
	}
	if err != nil {
		return err
	}
	// It goes on when the agent has ended, and asks in every way.
	late := fmt.Sprintf(`while kill -0 %d 2>/dev/null; do :; done; i=0; while :; do i=$((i+1)); echo '{"kind":"comment","body":"late"}' >"$TRIPHAMMER_OUTPUTS/late$i.json"; done`, os.Getpid())
	cmd := exec.Command("/bin/sh", "-c", late)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd.Start()
}

func (a *wayAgent) git(args ...string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	out, _ := exec.CommandContext(ctx, "git", args...).CombinedOutput()
	return string(out)
}

func (a *wayAgent) id(name string) string { return strings.TrimSpace(a.git("rev-parse", name)) }

// pushing pushes as Git does.
func pushing(args ...string) func(*wayAgent) string {
	return func(a *wayAgent) string { return a.git(append([]string{"push", "origin"}, args...)...) }
}

// line is a packet line.
func line(text string) string { return fmt.Sprintf("%04x%s", 4+len(text), text) }

const noObjects = "PACK\x00\x00\x00\x02\x00\x00\x00\x00\x02\x9d\x08\x82\x3b\xd8\xa8\xea\xb5\x10\xad\x6a\xc7\x5c\x82\x3c\xfd\x3e\xd3\x1e"

// pack sends commands with a pack.
func (a *wayAgent) pack(commands, pack string) string {
	return a.post(a.path+".git/git-receive-pack", commands+"0000"+pack)
}

// commanding sends the command that makes a ref.
func commanding(ref string) func(*wayAgent) string {
	return func(a *wayAgent) string { return a.pack(line(zeroID+" "+a.main+" "+ref+canRefer), noObjects) }
}

func (a *wayAgent) mainLine() string {
	return line(zeroID+" "+a.main+" refs/heads/main"+canRefer) + "0000" + noObjects
}

// command pushes to main at a path.
func (a *wayAgent) command(path string) string {
	if !strings.Contains(path, "git-receive-pack") {
		path += "/git-receive-pack"
	}
	return a.raw(a.head("POST", path, a.gateway, "") + a.mainLine())
}

func (a *wayAgent) post(path, body string) string {
	return a.raw(fmt.Sprintf("POST %s HTTP/1.1\r\nHost: %s\r\nAuthorization: %s\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", path, a.gateway, a.bearer, len(body), body))
}

// head is the head of a request with mainLine behind it.
func (a *wayAgent) head(method, path, host, more string) string {
	return fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\nAuthorization: %s\r\nConnection: close\r\nContent-Length: %d\r\n%s\r\n", method, path, host, a.bearer, len(a.mainLine()), more)
}

// raw sends bytes to the gateway, and returns what comes back.
func (a *wayAgent) raw(request string) string {
	c, err := net.Dial("tcp", a.gateway)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	_, _ = io.WriteString(c, request)
	answer, _ := io.ReadAll(c)
	return string(answer)
}

// opening asks the gateway for a pull request.
func opening(body string) func(*wayAgent) string {
	return func(a *wayAgent) string { return a.post(a.path+"/pulls", body) }
}

// files asks by a file.
func files(request string) func(*wayAgent) string {
	return putting(func(path string) error {
		if err := os.WriteFile(path+".tmp", []byte(request), 0o600); err != nil {
			return err
		}
		long := time.Now().Add(-time.Minute) // nobody waits for its end
		return errors.Join(os.Chtimes(path+".tmp", long, long), os.Rename(path+".tmp", path))
	})
}

// putting puts something where a request is looked for, and returns the answer.
func putting(put func(path string) error) func(*wayAgent) string {
	return func(a *wayAgent) string {
		a.asked++
		path := filepath.Join(a.outputs, fmt.Sprintf("a%d", a.asked))
		if err := put(path + ".json"); err != nil {
			return err.Error()
		}
		for end := time.Now().Add(8 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			if text, err := os.ReadFile(path + ".result.json"); err == nil {
				return string(text)
			}
		}
		return "no answer"
	}
}

// mcpAddress finds the address of the tools among the listening sockets: a run without a harness is not told.
func mcpAddress() string {
	text, _ := os.ReadFile("/proc/net/tcp")
	for _, row := range strings.Split(string(text), "\n") {
		cell := strings.Fields(row)
		if len(cell) < 4 || cell[3] != "0A" { // listening
			continue
		}
		var port uint16
		if _, err := fmt.Sscanf(cell[1][strings.IndexByte(cell[1], ':')+1:], "%X", &port); err != nil {
			continue
		}
		address := fmt.Sprintf("http://127.0.0.1:%d/", port)
		if resp, err := http.Get(address); err == nil {
			said, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if bytes.Contains(said, []byte("for the agent of a run")) {
				return address
			}
		}
	}
	return ""
}

// tool calls a tool with a token; empty: the right one.
func (a *wayAgent) tool(bearer, name, arguments string) string {
	if bearer == "" {
		bearer = "Bearer " + a.token
	}
	call := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, name, arguments)
	req, err := http.NewRequest(http.MethodPost, a.mcp, strings.NewReader(call))
	if err != nil {
		return err.Error()
	}
	req.Header = http.Header{"Authorization": {bearer}, "Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	text, _ := io.ReadAll(resp.Body)
	return resp.Status + " " + string(text)
}

// forgeFrames writes frames of a supervisor wherever it can: that a comment is asked for, that a pull request was
// opened, that a branch was pushed.
func forgeFrames() string {
	var frames bytes.Buffer
	for _, told := range []string{
		`{"kind":"request","data":{"name":"comment","request":"{\"kind\":\"comment\",\"body\":\"forged\"}"}}`,
		`{"kind":"request","data":{"name":"createPullRequest","request":"{}","done":"https://evil.example"}}`,
		`{"kind":"push","data":{"repository":"r","ref":"refs/heads/main","old":"0","new":"1"}}`,
	} {
		frames.WriteByte('v')
		_ = bits.Write(&frames, bits.BigEndian, uint32(len(told)))
		frames.WriteString(told)
	}
	places, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for fd := range 64 {
		if fd > 2 {
			places = append(places, fmt.Sprintf("/dev/fd/%d", fd))
		}
	}
	for _, place := range places {
		if to, _ := os.Readlink(place); !strings.HasPrefix(to, "pipe:") && !strings.HasPrefix(to, "socket:") {
			continue
		}
		if file, err := os.OpenFile(place, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
			_, _ = file.Write(frames.Bytes())
			_ = file.Close()
		}
	}
	_, _ = os.Stdout.Write(append([]byte("\n"), append(frames.Bytes(), '\n')...))
	return "frames were written"
}
