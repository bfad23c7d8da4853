package host

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"triphammer/cmd/triphammer/client/exit"
	"triphammer/server"
	"triphammer/server/api"
	"triphammer/server/hosted"
)

// openHosted opens the factories whose repositories live in the data directory.
func (in *instance) openHosted(ctx context.Context) error {
	for i := range in.opt.factories {
		f := &in.opt.factories[i]
		if !f.hosted {
			continue
		}
		f.logger = in.opt.logger
		if err := f.open(ctx, in.dir, in.opt.server.BaseURL); err != nil {
			return err
		}
	}
	return nil
}

// place tells where the repository of a factory is.
func (in *instance) place(factory string) server.Place {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.places[factory]
}

// addKept adds the factories that were made while a server ran, and that are not in the
// configuration.
func (in *instance) addKept() error {
	if in.opt.hosting == nil {
		return nil
	}
	kept, err := hosted.Kept(filepath.Join(in.dir, HostedFolder))
	for _, name := range kept {
		i := slices.IndexFunc(in.opt.factories, func(f factoryOptions) bool { return f.name == name })
		switch {
		case i < 0:
			in.opt.factories = append(in.opt.factories, in.hostedHere(name))
		case !in.opt.factories[i].hosted:
			return exit.With(exit.Usage, "the factory %s lives on this server, in %s, and the settings name another repository for it: give one of the two another name",
				name, filepath.Join(in.dir, HostedFolder, name+".git"))
		}
	}
	return err
}

// hostedHere has the settings of a factory that is made while the server runs.
func (in *instance) hostedHere(name string) factoryOptions {
	f := *in.opt.hosting
	f.name, f.hosted, f.logger = name, true, in.opt.logger
	return f
}

// host makes a factory that lives here, and begins to serve it. It lasts over restarts.
func (in *instance) host(ctx context.Context, name, by string) error {
	if in.shared() {
		return refuseHosted()
	}
	in.making.Lock()
	defer in.making.Unlock()
	in.mu.Lock()
	_, exists := in.places[name]
	in.mu.Unlock()
	switch {
	case !factoryNames().MatchString(name):
		return api.Refuse(api.InvalidRequest, fmt.Sprintf("%q cannot name a factory: lower-case letters, digits, - and _, such as payments", name),
			api.FieldProblem{Field: "name", Message: name})
	case exists:
		return api.Refuse(api.Conflict, "this server has a factory "+name)
	}
	f := in.hostedHere(name)
	if err := f.open(ctx, in.dir, in.opt.server.BaseURL); errors.Is(err, hosted.ErrNoGit) {
		return api.Refuse(api.NotSupported, err.Error())
	} else if err != nil {
		return err
	}
	if err := f.home.Keep("made by " + by + " at " + Now().UTC().Format(time.RFC3339)); err != nil {
		return err
	}
	in.restore(ctx, name)
	a, err := in.addFactory(f)
	if err != nil {
		return err
	}
	in.data.Add(a)
	in.start(a)
	return nil
}

// checkForgotten refuses to start a server that serves nothing, although it served something
// before: somebody has left out the repository. If it serves less than before because of
// that, it is told in the log.
func (in *instance) checkForgotten(ctx context.Context) error {
	if in.configured > 0 {
		return nil
	}
	names, err := in.store.Applies.Factories(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		if slices.ContainsFunc(in.opt.factories, func(f factoryOptions) bool { return f.name == name }) {
			continue
		}
		last, err := in.store.Applies.Last(ctx, name, "")
		if err != nil {
			return err
		}
		if len(in.opt.factories) == 0 {
			return exit.With(exit.Usage, "which repository? This data directory served the factory %s from %s: give --repo PATH or URL (or TRIPHAMMER_REPO), or --hosted NAME",
				name, last.Repository)
		}
		in.opt.logger.Warn("a factory that served before is not in the settings, so it does not serve", "factory", name, "repository", last.Repository)
	}
	return nil
}
