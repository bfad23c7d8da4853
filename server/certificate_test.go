package server

import (
	"crypto/tls"
	"log/slog"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestCertificateEnds: the end of the TLS certificate is told from 14 days before on, and an
// expired one is an error (SPEC 13.3).
func TestCertificateEnds(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		end := time.Now().Add(14*24*time.Hour + 30*time.Minute).Truncate(time.Second)
		writePairUntil(t, dir, "x", end)
		var logs lockedBuffer
		l := Listeners{CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem")}
		if err := l.LoadCertificate(time.Now, slog.New(slog.NewTextHandler(&logs, nil))); err != nil {
			t.Fatal(err)
		}
		go l.certificate.watch(t.Context())
		synctest.Wait()
		if s := l.certificate.State(); !s.Valid || s.Problem != "" || logs.String() != "" {
			t.Errorf("15 days before: %+v, %s", s, logs.String())
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if s := l.certificate.State(); !s.Valid || !strings.Contains(s.Problem, "expires at") || strings.Count(logs.String(), "level=WARN") != 1 {
			t.Errorf("14 days before: %+v, %s", s, logs.String())
		}
		time.Sleep(14 * 24 * time.Hour)
		synctest.Wait()
		if s := l.certificate.State(); s.Valid || !strings.Contains(s.Problem, "expired at") || strings.Count(logs.String(), "level=ERROR") != 1 {
			t.Errorf("after the end: %+v, %s", s, logs.String())
		}
		if n := strings.Count(logs.String(), "level=WARN"); n != 14 {
			t.Errorf("warned %d times in 14 days", n)
		}
	})
}

// TestCertificateShown: status and metrics show the certificate of a server (SPEC 13.3).
func TestCertificateShown(t *testing.T) {
	f := newFixture(t)
	dir := t.TempDir()
	end := time.Now().Add(24 * time.Hour).Truncate(time.Second)
	writePairUntil(t, dir, "x", end)
	tcp := listen(t, "tcp", "127.0.0.1:0")
	f.serve(Listeners{TCP: tcp, CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem")})
	conn, err := tls.Dial("tcp", tcp.Addr().String(), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	if status := f.get("/api/v1/status", f.key("reader", "read")).body; !strings.Contains(string(status), `"problem":"the TLS certificate `) {
		t.Error("status does not show it:", string(status))
	}
	if metrics := f.get("/metrics", f.key("scraper", "read")).body; !strings.Contains(string(metrics), "triphammer_tls_certificate_expiry_timestamp_seconds "+strconv.FormatFloat(float64(end.Unix()), 'g', -1, 64)) {
		t.Error("no metric:", string(metrics))
	}
}
