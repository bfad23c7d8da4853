package host

import (
	"net"
	"os"
	"path/filepath"
)

// installedData is the data directory of the server that packages install (docs/install.md).
const installedData = "/var/lib/triphammer"

// installedServer is the data directory of the installed server, for its own user who names none.
// It is empty for anybody else, who cannot look into it.
func installedServer() string {
	for _, name := range []string{StoreFile, AddressFile} {
		if _, err := os.Stat(filepath.Join(installedData, name)); err == nil {
			return installedData
		}
	}
	return ""
}

// tellSystemd tells systemd, or what else started this server, how far it is: sd_notify(3).
// Nobody is told if nobody asked.
func tellSystemd(state string) error {
	socket := os.Getenv("NOTIFY_SOCKET")
	if socket == "" {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // the message is sent, or Write has failed
	_, err = conn.Write([]byte(state))
	return err
}
