package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path"
	"strings"
	"syscall"
	"time"

	"triphammer/cmd/triphammer/client"
	"triphammer/cmd/triphammer/client/exit"
)

// boundConnections limits connections by the number of descriptors that this process may
// open, so that some are always left for the store and runs.
func (s *serving) boundConnections() error {
	var files syscall.Rlimit // the Go runtime has raised the soft limit to the hard one
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return fmt.Errorf("the limit of open files: %w", err)
	}
	limit := int(min(files.Cur, 1<<30))
	l := &s.listeners
	switch {
	case l.MaxConnections < 0 || l.MaxPerAddress < 0:
		return exit.With(exit.Usage, "--max-connections and --max-connections-per-address are not negative")
	case l.MaxConnections > limit-leastDescriptors:
		return exit.With(exit.Usage, "--max-connections %d: this process may have %d files open (ulimit -n, LimitNOFILE), and needs %d of them for itself",
			l.MaxConnections, limit, leastDescriptors)
	case l.MaxConnections == 0:
		l.MaxConnections = max(1, min(mostConnections, limit*3/4, limit-leastDescriptors))
	}
	return nil
}

// listenTCP listens on the address that a flag says. When a server is killed while it starts a
// process, the process can hold the address for a moment longer, so listenTCP tries again.
func listenTCP(ctx context.Context, flag, address string) (l net.Listener, err error) {
	waitErr := client.WaitFor(ctx, 2*time.Second, "", func() (bool, error) {
		l, err = net.Listen("tcp", address)
		return !errors.Is(err, syscall.EADDRINUSE), nil
	})
	switch {
	case err == nil:
		return l, waitErr
	case errors.Is(err, syscall.EADDRINUSE):
		host, _, _ := net.SplitHostPort(address) // it was well formed
		return nil, exit.With(exit.Usage, "%s: another program listens on %s (ss -ltnp shows which). Stop it, or choose another address: %s %s takes any free port",
			flag, address, flag, net.JoinHostPort(host, "0"))
	case errors.As(err, new(*net.AddrError)), strings.HasSuffix(err.Error(), "unknown port"):
		return nil, exit.With(exit.Usage, "%s %q is not HOST:PORT, such as 127.0.0.1:8787", flag, address)
	case errors.Is(err, fs.ErrPermission):
		return nil, exit.With(exit.Usage, "%s: this user may not listen on %s: ports below 1024 need a privilege (AmbientCapabilities=CAP_NET_BIND_SERVICE). Choose a higher port, with a proxy before it", flag, address)
	}
	return nil, exit.With(exit.Usage, "%s: %w", flag, err)
}

// defaultURL is the URL of the listening address.
func (s *serving) defaultURL() string {
	scheme := "http://"
	if s.listeners.CertFile != "" {
		scheme = "https://"
	}
	addr := s.listeners.TCP.Addr().(*net.TCPAddr)
	if addr.IP.IsUnspecified() {
		return fmt.Sprintf("%slocalhost:%d", scheme, addr.Port)
	}
	return scheme + addr.String()
}

// pathLetters are the characters that the path of a base URL may have. None of them needs
// an escape, so that signed addresses, links and cookies all write the path in one way.
const pathLetters = "/ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"

// checkBaseURL refuses an invalid address. It warns if credentials would travel
// unencrypted.
func (s *serving) checkBaseURL(base string) error {
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || u.User != nil {
		return exit.With(exit.Usage, "--base-url %q is not an address such as https://hammer.example.com", base)
	}
	if u.Path != "" && (path.Clean(u.Path) != u.Path || strings.Trim(u.Path, pathLetters) != "") {
		return exit.With(exit.Usage, "--base-url %q: its path has more than letters, digits, - . _ ~ and / between them, such as https://example.com/triphammer",
			base)
	}
	ip, err := netip.ParseAddr(u.Hostname())
	if loopback := u.Hostname() == "localhost" || err == nil && ip.IsLoopback(); u.Scheme != "https" && !loopback {
		s.logger.Warn("the base URL is neither https nor loopback: webhook secrets travel in the clear", "base_url", base)
	}
	return nil
}

// listenUnix makes the socket in the data directory. The data directory is locked, so an
// existing socket belongs to a process that has died.
func (s *serving) listenUnix() error {
	if err := s.makeAdminKey(); err != nil {
		return err
	}
	path, release, err := inFolder(s.in.dir, SocketName)
	if err != nil {
		return err
	}
	_ = os.Remove(path) // from a process that died
	unix, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		release()
		return fmt.Errorf("the local socket: %w", err)
	}
	unix.SetUnlinkOnClose(false)
	s.listeners.Unix = unix
	s.socket = func() { _ = os.Remove(path); release() }
	return os.Chmod(path, 0o600)
}
