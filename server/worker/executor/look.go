package executor

import (
	"context"
	"crypto/rand"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"triphammer/server/inside"
	"triphammer/server/run/task"
)

// This program looks into an image of this machine: it starts in the image as for a run, without
// a network, and says which programs a run would not find.

// looks have the knowledge of images.
type looks struct {
	mu      sync.Mutex
	known   map[string]*looked
	missing map[string][]string // libraries, by the id of the image
	time    time.Duration       // limit of a look
	quiet   time.Time           // until when the engine is not asked, because it did not answer in time
}

type looked struct {
	id    string // of the image; empty: it is not on this machine, or the engine does not say
	away  bool   // the image is not on this machine
	fails bool   // this program did not start in it
	lacks map[string]bool
	again time.Time // when to ask for the id
}

// unknownImage matches the errors of engines about an image that is not on this machine.
var unknownImage = regexp.MustCompile(`(?i)no such image|image not known`)

// lookTime is how long an apply or a page waits for a look.
const lookTime = 10 * time.Second

// lacks implements task.Place.Lacks for the image. If ctx ends during a look, it returns nothing
// and keeps nothing.
func (e *Executor) lacks(ctx context.Context, image string, programs []string) (lacking []string, here bool) {
	g, err := e.engine()
	if err != nil {
		return nil, true
	}
	e.looks.mu.Lock()
	defer e.looks.mu.Unlock()
	l := e.looks.known[image]
	switch {
	case e.now().Before(e.looks.quiet):
		return nil, true
	case l == nil:
		l = &looked{}
		e.looks.known[image] = l
	}
	defer func() {
		if ctx.Err() != nil {
			delete(e.looks.known, image)
			e.looks.quiet = e.now().Add(lookAgain)
			lacking, here = nil, true
		}
	}()
	if !e.now().Before(l.again) {
		id, err := g.do(ctx, "image", "inspect", "--format", "{{.Id}}", image)
		if err != nil || id != l.id || l.fails {
			*l = looked{id: id, lacks: make(map[string]bool)}
			l.away = err != nil && unknownImage.MatchString(err.Error())
		}
		l.again = e.now().Add(lookAgain)
	}
	if ask := slices.DeleteFunc(slices.Clone(programs), func(p string) bool { _, is := l.lacks[p]; return is }); l.id != "" && !l.fails && len(ask) > 0 {
		l.fails = e.look(ctx, g, l, ask) != nil
	}
	for _, p := range programs {
		if l.lacks[p] || l.away && e.portable(p) == "" && (p != "git" || e.tools == "" || !inside.Executable(filepath.Join(e.tools.Bin(), p))) {
			lacking = append(lacking, p)
		}
	}
	return lacking, !l.away
}

// missing are the libraries that programs of this machine need and an image lacks. Finding them
// may take as long as starting a container.
func (e *Executor) missing(ctx context.Context, image string) []string {
	e.looks.mu.Lock()
	missing, known := e.looks.missing[image]
	e.looks.mu.Unlock()
	g, err := e.engine()
	if known || err != nil {
		return missing
	}
	if missing, _, err = e.askAnew(ctx, g, image, nil); err == nil { // after an error, the run itself says why nothing starts
		e.looks.mu.Lock()
		e.looks.missing[image] = missing
		e.looks.mu.Unlock()
	}
	return missing
}

// askAnew asks an image for programs that were not asked for yet, and finds the libraries that the
// image lacks.
func (e *Executor) askAnew(ctx context.Context, g *engine, image string, programs []string) (missing []string, has []bool, err error) {
	var all []string
	if e.tools != "" {
		all = inside.CLibrary()
	}
	if has, err = e.ask(ctx, g, image, nil, append(slices.Clone(all), programs...)); err != nil {
		return nil, nil, err
	}
	for i, file := range all {
		if !has[i] || !has[0] { // libraries of another system's loader do not serve this program
			missing = append(missing, file)
		}
	}
	if has = has[len(all):]; len(missing) > 0 && len(programs) > 0 {
		has, err = e.ask(ctx, g, image, missing, programs)
	}
	return missing, has, err
}

// look asks the image for the programs.
func (e *Executor) look(ctx context.Context, g *engine, l *looked, programs []string) (err error) {
	var has []bool
	if missing, known := e.looks.missing[l.id]; known {
		has, err = e.ask(ctx, g, l.id, missing, programs)
	} else if missing, has, err = e.askAnew(ctx, g, l.id, programs); err == nil {
		e.looks.missing[l.id] = missing
	}
	for i := range has {
		l.lacks[programs[i]] = !has[i]
	}
	return err
}

// ask asks the image whether it has programs or libraries. This program starts in the image with
// the loader and the libraries of this machine.
func (e *Executor) ask(ctx context.Context, g *engine, image string, missing, names []string) (has []bool, err error) {
	name := "triphammer-look-" + strings.ToLower(rand.Text())
	argv := append(e.closed(g, e.limitsOf(&task.Task{}), missing, names...), "--name="+name)
	for _, path := range e.granted(nil) {
		argv = append(argv, bind(path, ",readonly"))
	}
	argv = append(append(argv, strings.Fields(e.containers.Options)...), "--network=none")
	if n, err := inside.NeedsOf(e.program); err == nil && n.Loader != "" && e.tools != "" {
		argv = append(argv, "--entrypoint="+filepath.Join(e.tools.Lib(), filepath.Base(n.Loader)), image, "--library-path", e.tools.Lib(), e.program)
	} else {
		argv = append(argv, image)
	}
	argv = append(argv, inside.SuperviseCommand, inside.LookInside, string(e.tools))
	cmd := exec.CommandContext(ctx, inside.Self, append([]string{inside.SuperviseCommand, inside.Outside}, append(argv, names...)...)...)
	said := &lockedBuffer{} // an image can say anything
	cmd.Stdout, cmd.Dir, cmd.WaitDelay, cmd.Env = said, "/", time.Second, engineEnvironment()
	err = cmd.Run()
	if ctx.Err() != nil { // an engine that is stopped leaves a container behind
		tidy, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTime)
		defer cancel()
		_, _ = g.do(tidy, "rm", "--force", "--volumes", name) // the container may never have been made
	}
	answers := strings.TrimSpace(said.String())
	if err == nil && len(answers) != len(names) {
		err = fmt.Errorf("%d answers for %d names", len(answers), len(names))
	}
	if err != nil {
		return nil, err
	}
	for _, answer := range answers {
		has = append(has, answer != inside.LacksIt)
	}
	return has, nil
}
