package gateway

import (
	"bytes"
	"compress/zlib"
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"triphammer/applier/gitrepo/gittest"
	"triphammer/server/run/event"
	"triphammer/server/run/task"
)

const usual = " report-status side-band-64k agent=git/2"

// packOf makes a pack with commits. It claims to have count objects.
func packOf(count int, commits ...string) string {
	var b bytes.Buffer
	b.WriteString("PACK\x00\x00\x00\x02")
	_ = binary.Write(&b, binary.BigEndian, uint32(count))
	for _, c := range commits {
		size, kind := len(c), byte(packCommit<<4)
		head := []byte{kind | byte(size&15)}
		for size >>= 4; size > 0; size >>= 7 {
			head[len(head)-1] |= 0x80
			head = append(head, byte(size&0x7f))
		}
		b.Write(head)
		z := zlib.NewWriter(&b)
		_, _ = io.WriteString(z, c)
		_ = z.Close()
	}
	sum := sha1.Sum(b.Bytes())
	b.Write(sum[:])
	return b.String()
}

func commitID(content string) string {
	sum := sha1.Sum(fmt.Appendf(nil, "commit %d\x00%s", len(content), content))
	return hex.EncodeToString(sum[:])
}

// TestPushRequests: a run may write its requests itself, and strangely. What it may not do does
// not happen, and the refusal says why.
func TestPushRequests(t *testing.T) {
	w, work := pushWorld(t, task.Pushes{Branches: []string{"*"}, Tags: []string{"*"}})
	w.must(work, "commit", "-q", "--allow-empty", "-m", "mine")
	bare := filepath.Join(w.root, "example/app.git")
	value := func(dir, name string) string {
		t.Helper()
		return strings.TrimSpace(gittest.Git(t, dir, "rev-parse", name))
	}
	main, theirs, tree := value(bare, "main"), value(bare, "triphammer/theirs"), value(bare, "main^{tree}")
	zero := strings.Repeat("0", 40)
	create := func(ref string) string { return zero + " " + main + " " + ref }
	const who = "a <a@example.com> 1 +0000\n"
	fresh := "tree " + tree + "\nauthor " + who + "committer " + who + "\nunrelated\n"
	// A line that looks like a parent, where Git does not look for parents.
	lying := "tree " + tree + "\nauthor " + who + "committer " + who + "parent " + theirs + "\n\nlying\n"
	said := "tree " + tree + "\nauthor " + who + "committer " + who + "\nparent " + theirs + "\n"
	signed := "tree " + tree + "\nauthor " + who + "committer " + who + "gpgsig x\n parent " + theirs + "\n\nsigned\n"
	before := gittest.Git(t, bare, "for-each-ref")
	empty := packOf(0)
	for name, tt := range map[string]struct{ sent, want string }{
		"the default branch":                  {packet(create("refs/heads/main")+"\x00"+usual) + flush + empty, "default branch only if"},
		"the default branch, in another case": {packet(create("refs/heads/mAIN")+"\x00"+usual) + flush + empty, "default branch only if"},
		"what a tag points to":                {packet(create("refs/heads/main^{}")+"\x00"+usual) + flush + empty, "refs/heads/main^{} is no name of a branch or tag"},
		"up and down":                         {packet(create("refs/heads/x/../main")+"\x00"+usual) + flush + empty, "is no name of a branch or tag"},
		"two slashes":                         {packet(create("refs/heads//main")+"\x00"+usual) + flush + empty, "is no name of a branch or tag"},
		"a slash behind":                      {packet(create("refs/heads/main/")+"\x00"+usual) + flush + empty, "is no name of a branch or tag"},
		"a space behind":                      {packet(create("refs/heads/main ")+"\x00"+usual) + flush + empty, "is no name of a branch or tag"},
		"a line break behind":                 {packet(create("refs/heads/main\n\n")+"\x00"+usual) + flush + empty, "is no name of a branch or tag"},
		"HEAD":                                {packet(create("HEAD")+"\x00"+usual) + flush + empty, "HEAD is no name of a branch or tag"},
		"a branch without its folder":         {packet(create("main")+"\x00"+usual) + flush + empty, "main is no name of a branch or tag"},
		"a symbolic ref of a remote":          {packet(create("refs/remotes/origin/HEAD")+"\x00"+usual) + flush + empty, "a run pushes branches"},
		"a folder that looks like branches":   {packet(create("refs/HEADS/main")+"\x00"+usual) + flush + empty, "a run pushes branches"},
		"a replacement":                       {packet(create("refs/replace/"+main)+"\x00"+usual) + flush + empty, "a run pushes branches"},
		"a review":                            {packet(create("refs/for/main")+"\x00"+usual) + flush + empty, "a run pushes branches"},
		"a draft":                             {packet(create("refs/drafts/main")+"\x00"+usual) + flush + empty, "a run pushes branches"},
		"a review with options in its name":   {packet(create("refs/for/main%submit")+"\x00"+usual) + flush + empty, "a run pushes branches"},
		"a deletion":                          {packet(theirs+" "+zero+" refs/heads/triphammer/theirs\x00"+usual+" delete-refs") + flush, "a run deletes nothing"},
		"a deletion of what is not there":     {packet(zero+" "+zero+" refs/heads/triphammer/new\x00"+usual) + flush, "a run deletes nothing"},
		"a second update, not allowed":        {packet(create("refs/heads/new")+"\x00"+usual) + packet(create("refs/heads/main")) + flush + empty, "default branch only if"},
		"the same twice":                      {packet(create("refs/heads/new")+"\x00"+usual) + packet(create("refs/heads/new")) + flush + empty, "it is pushed twice at once"},
		"options":                             {packet(create("refs/heads/new")+"\x00"+usual+" push-options") + flush + packet("merge_request.create") + flush + empty, "a run sends no options of a push"},
		"options that look like a value":      {packet(create("refs/heads/new")+"\x00"+usual+" push-options=1") + flush + packet("merge_request.create") + flush + empty, "a run sends no options of a push"},
		"options in the second line":          {packet(create("refs/heads/new")) + packet(create("refs/heads/more")+"\x00 push-options") + flush + packet("o") + flush + empty, "the request is no push of Git"},
		"abilities twice":                     {packet(create("refs/heads/new")+"\x00"+usual) + packet(create("refs/heads/more")+"\x00 push-options") + flush + empty, "the request is no push of Git"},
		"a certificate":                       {packet("push-cert\x00"+usual) + packet("certificate version 0.1\n") + packet("push-cert-end\n") + flush + empty, "a run signs no push"},
		"a delimiter in place of the end":     {packet(create("refs/heads/new")+"\x00"+usual) + "0001" + empty, "the request is no push of Git"},
		"no end":                              {packet(create("refs/heads/new") + "\x00" + usual), "the request is no push of Git"},
		"two kinds of ids":                    {packet(create("refs/heads/new")+"\x00"+usual) + packet(strings.Repeat("0", 64)+" "+strings.Repeat("1", 64)+" refs/heads/main") + flush, "the request is no push of Git"},
		"endless commands":                    {strings.Repeat(packet(create("refs/heads/"+strings.Repeat("x", 60_000))), 5), "a push has at most"},
		"no HTTP":                             {"GET / HTTP/1.1\r\n\r\n", "the request is no push of Git"},
		"a commit that is no descendant":      {packet(theirs+" "+commitID(fresh)+" refs/heads/triphammer/theirs\x00"+usual) + flush + packOf(1, fresh), "does not rewrite what"},
		"a parent below the author":           {packet(theirs+" "+commitID(lying)+" refs/heads/triphammer/theirs\x00"+usual) + flush + packOf(1, lying), "does not rewrite what"},
		"a parent in the message":             {packet(theirs+" "+commitID(said)+" refs/heads/triphammer/theirs\x00"+usual) + flush + packOf(1, said), "does not rewrite what"},
		"a parent in a signature":             {packet(theirs+" "+commitID(signed)+" refs/heads/triphammer/theirs\x00"+usual) + flush + packOf(1, signed), "does not rewrite what"},
		"back to main":                        {packet(theirs+" "+main+" refs/heads/triphammer/theirs\x00"+usual) + flush + empty, "does not rewrite what"},
		"a shallow history":                   {packet("shallow "+commitID(fresh)) + packet(theirs+" "+commitID(fresh)+" refs/heads/triphammer/theirs\x00"+usual) + flush + packOf(1, fresh), "does not rewrite what"},
		"more objects than there are":         {packet(theirs+" "+commitID(fresh)+" refs/heads/triphammer/theirs\x00"+usual) + flush + packOf(1<<31-1, fresh), "the pack is not as Git writes packs"},
		"fewer objects than there are":        {packet(theirs+" "+commitID(fresh)+" refs/heads/triphammer/theirs\x00"+usual) + flush + packOf(1, fresh, lying), "does not rewrite what"},
		"more behind the pack":                {packet(theirs+" "+commitID(fresh)+" refs/heads/triphammer/theirs\x00"+usual) + flush + packOf(1, fresh) + strings.Repeat("x", 100_000), "does not rewrite what"},
		"no pack":                             {packet(theirs+" "+commitID(fresh)+" refs/heads/triphammer/theirs\x00"+usual) + flush, "the pack is not as Git writes packs"},
		"a tag that is moved":                 {packet(value(bare, "v1")+" "+theirs+" refs/tags/v1\x00"+usual) + flush + empty, "a run moves no tag"},
	} {
		if _, text := w.send(http.MethodPost, "/example/app.git/"+pushing, w.bearer(), tt.sent); !strings.Contains(text, tt.want) {
			t.Errorf("%s: %q, want %q", name, text, tt.want)
		}
		if after := gittest.Git(t, bare, "for-each-ref"); after != before {
			t.Fatalf("%s: the forge has\n%s", name, after)
		}
	}
}

// TestPushRemotes: the other address of a repository is another remote for Git, and the same for the rules.
func TestPushRemotes(t *testing.T) {
	w, work := pushWorld(t, task.Pushes{})
	w.must(work, "commit", "-q", "--allow-empty", "-m", "mine")
	w.must(work, "remote", "add", "second", w.forge.URL+"/example/app")
	for _, remote := range []string{"origin", "second"} {
		if out, err := w.git(work, "push", remote, "HEAD:other"); err == nil || !strings.Contains(out, "(a run pushes to triphammer/*") {
			t.Errorf("%s: %v %s", remote, err, out)
		}
	}
	for i, remote := range []string{"origin", "second", "origin"} {
		w.must(work, "push", "-q", remote, fmt.Sprintf("HEAD:triphammer/%d", i))
	}
	if out, err := w.git(work, "push", "second", "HEAD:triphammer/4"); err == nil || !strings.Contains(out, "push.max of the automation: 3") {
		t.Errorf("%v %s", err, out)
	}
}

// TestPushesAtOnce: pushes at once do not get past a limit together, and one that is broken off
// before its answer counts.
func TestPushesAtOnce(t *testing.T) {
	w, work := pushWorld(t, task.Pushes{Max: 3, MaxBytes: 30_000})
	bare := filepath.Join(w.root, "example/app.git")
	w.must(work, "commit", "-q", "--allow-empty", "-m", "mine")
	var passed, most atomic.Int32
	w.fault(func(rw http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, pushing) {
			return false
		}
		most.Store(max(most.Load(), passed.Add(1)))
		w.forge.Backend.ServeHTTP(rw, r)
		passed.Add(-1)
		return true
	})
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() { _, _ = w.git(work, "push", "-q", "origin", fmt.Sprintf("HEAD:triphammer/at-once-%d", i)) })
	}
	all.Wait()
	if got := strings.Count(gittest.Git(t, bare, "for-each-ref"), "/at-once-"); got != 3 || most.Load() != 1 {
		t.Errorf("%d branches were pushed, %d at once", got, most.Load())
	}

	// The forge takes the push, and the gateway does not hear of it.
	w, work = pushWorld(t, task.Pushes{Max: 1})
	w.must(work, "commit", "-q", "--allow-empty", "-m", "mine")
	broken := false
	w.fault(func(rw http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, pushing) || broken {
			return false
		}
		broken = true
		w.forge.Backend.ServeHTTP(&unheard{header: rw.Header()}, r)
		panic(http.ErrAbortHandler)
	})
	if out, err := w.git(work, "push", "origin", "HEAD:triphammer/unheard"); err == nil {
		t.Errorf("the push arrived: %s", out)
	}
	if out, err := w.git(work, "push", "origin", "HEAD:triphammer/second"); err == nil || !strings.Contains(out, "push.max of the automation: 1") {
		t.Errorf("%v %s", err, out)
	}
	w.end()
	if !slices.ContainsFunc(w.pushed, func(e event.Push) bool { return e.Refused == "the forge did not say whether it took it" }) {
		t.Errorf("told %+v", w.pushed)
	}
}

// unheard is an answer that nobody gets.
type unheard struct{ header http.Header }

func (u *unheard) Header() http.Header         { return u.header }
func (u *unheard) Write(b []byte) (int, error) { return len(b), nil }
func (u *unheard) WriteHeader(int)             {}

// TestPushShallow: a run with a shallow clone pushes as usual, and the rules hold for it.
func TestPushShallow(t *testing.T) {
	w, _ := pushWorld(t, task.Pushes{})
	work := filepath.Join(w.root, "shallow")
	w.must(w.root, "clone", "-q", "--depth", "1", "--no-single-branch", w.forge.URL+"/example/app", work)
	w.must(work, "checkout", "-q", "-b", "mine", "origin/triphammer/theirs")
	w.must(work, "commit", "-q", "--allow-empty", "-m", "on top of theirs")
	w.must(work, "push", "-q", "origin", "HEAD:triphammer/theirs", "HEAD:triphammer/new")
	w.must(work, "commit", "-q", "--amend", "--allow-empty", "-m", "better")
	w.must(work, "push", "-q", "-f", "origin", "HEAD:triphammer/theirs")
	if out, err := w.git(work, "push", "-f", "origin", "HEAD:main"); err == nil || !strings.Contains(out, "default branch only if") {
		t.Errorf("%v %s", err, out)
	}
}

// TestPushRefusedByForge: what a forge itself refuses is told as such, and Git shows it.
func TestPushRefusedByForge(t *testing.T) {
	w, work := pushWorld(t, task.Pushes{})
	w.must(work, "commit", "-q", "--allow-empty", "-m", "mine")
	gittest.Git(t, filepath.Join(w.root, "example/app.git"), "config", "transfer.hideRefs", "refs/heads/triphammer/hidden")
	out, err := w.git(work, "push", "origin", "HEAD:triphammer/hidden")
	if err == nil || !strings.Contains(out, "deny updating a hidden ref") {
		t.Errorf("%v %s", err, out)
	}
	w.end()
	if len(w.pushed) != 1 || w.pushed[0].Refused != "the forge refused it: deny updating a hidden ref" {
		t.Errorf("told %+v", w.pushed)
	}
}

// TestPushEmptyRepository: into an empty repository a run pushes its own branches, too.
func TestPushEmptyRepository(t *testing.T) {
	w := startGatewayWith(t, false, usually(task.Pushes{}))
	work := filepath.Join(w.root, "work")
	gittest.Git(t, w.root, "init", "-q", "-b", "main", work)
	w.must(work, "commit", "-q", "--allow-empty", "-m", "mine")
	if out, err := w.git(work, "push", w.forge.URL+"/example/app", "HEAD:main"); err == nil || !strings.Contains(out, "(a run pushes to triphammer/*") {
		t.Errorf("%v %s", err, out)
	}
	w.must(work, "push", "-q", w.forge.URL+"/example/app", "HEAD:triphammer/first")
}
