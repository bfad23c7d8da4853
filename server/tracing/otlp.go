package tracing

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// The messages of OTLP as JSON (https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding), as far as
// traces need them. The SDK's exporter would bring gRPC and the registries of protobuf into the program:
// 3 MB more, with which every process starts, also each supervisor of a run.
type (
	traceID [16]byte
	spanID  [8]byte

	span struct {
		TraceID    traceID     `json:"traceId"`
		SpanID     spanID      `json:"spanId"`
		Parent     *spanID     `json:"parentSpanId,omitempty"`
		Name       string      `json:"name"`
		Kind       int         `json:"kind"`
		Start      nanos       `json:"startTimeUnixNano"`
		End        nanos       `json:"endTimeUnixNano"`
		Attributes []attribute `json:"attributes,omitempty"`
		Status     *status     `json:"status,omitempty"`
	}
	attribute struct {
		Key   string `json:"key"`
		Value any    `json:"value"`
	}
	status struct {
		Message string `json:"message,omitempty"`
		Code    int    `json:"code"`
	}
	nanos time.Time
)

// Kinds of spans, and the code of a status.
const (
	kindInternal, kindClient, kindProducer, kindConsumer = 1, 3, 4, 5

	codeError = 2
)

func (id traceID) String() string               { return hex.EncodeToString(id[:]) }
func (id spanID) String() string                { return hex.EncodeToString(id[:]) }
func (id traceID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }
func (id spanID) MarshalText() ([]byte, error)  { return []byte(id.String()), nil }
func (n nanos) MarshalText() ([]byte, error) {
	return strconv.AppendInt(nil, time.Time(n).UnixNano(), 10), nil
}

// text is an attribute that is left out if it is empty: see span.add.
func text(key, value string) attribute {
	if value == "" {
		return attribute{}
	}
	return attribute{key, map[string]string{"stringValue": value}}
}

func number(key string, value int64) attribute {
	return attribute{key, map[string]string{"intValue": strconv.FormatInt(value, 10)}}
}

func amount(key string, value float64) attribute {
	return attribute{key, map[string]float64{"doubleValue": value}}
}

// collector is where traces are sent.
type collector struct {
	address  string
	headers  http.Header
	resource []attribute
	client   *http.Client
}

// setting reads a variable of OpenTelemetry: that for traces, or else that for everything.
func setting(name string) string {
	if value := os.Getenv("OTEL_EXPORTER_OTLP_TRACES_" + name); value != "" {
		return value
	}
	return os.Getenv("OTEL_EXPORTER_OTLP_" + name)
}

// Wanted tells whether the environment names a collector, by the standard variables of OpenTelemetry
// (https://opentelemetry.io/docs/specs/otel/protocol/exporter/).
func Wanted() bool {
	return !strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") && os.Getenv("OTEL_TRACES_EXPORTER") != "none" && setting("ENDPOINT") != ""
}

// toCollector is the collector that the environment names.
func toCollector(version string) (*collector, error) {
	address := os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
	address = cmp.Or(address, strings.TrimSuffix(os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"), "/")+"/v1/traces")
	if u, err := url.Parse(address); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_ENDPOINT is no http or https address, such as http://localhost:4318")
	}
	if p := setting("PROTOCOL"); p != "" && p != "http/json" && p != "http/protobuf" { // whoever takes one over HTTP takes both
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL is %s: traces are sent as http/json alone, usually to port 4318", p)
	}
	for _, name := range []string{"CERTIFICATE", "CLIENT_KEY", "CLIENT_CERTIFICATE"} {
		if setting(name) != "" {
			return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_%s does nothing here: put the certificate where the system looks, or a collector on this machine", name)
		}
	}
	if s := os.Getenv("OTEL_TRACES_SAMPLER"); s != "" && !strings.HasSuffix(s, "always_on") {
		return nil, fmt.Errorf("OTEL_TRACES_SAMPLER is %s: every run is traced here. A collector can take a part; OTEL_TRACES_EXPORTER=none turns traces off", s)
	}
	wait := 10 * time.Second
	if ms, err := strconv.Atoi(setting("TIMEOUT")); err == nil && ms > 0 {
		wait = time.Duration(ms) * time.Millisecond
	}
	c := &collector{address: address, headers: make(http.Header), client: &http.Client{Timeout: wait, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	if err := pairs(setting("HEADERS"), func(name, value string) { c.headers.Set(name, value) }); err != nil {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_HEADERS: %w", err)
	}
	named := make(map[string]bool)
	add := func(key, value string) {
		if !named[key] && value != "" {
			named[key] = true
			c.resource = append(c.resource, text(key, value))
		}
	}
	add("service.name", os.Getenv("OTEL_SERVICE_NAME"))
	if err := pairs(os.Getenv("OTEL_RESOURCE_ATTRIBUTES"), add); err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	add("service.name", "triphammer")
	add("service.version", version)
	return c, nil
}

// pairs reads name=value,name=value, in which values are encoded as in addresses.
func pairs(list string, add func(name, value string)) error {
	for _, pair := range strings.Split(list, ",") {
		if pair = strings.TrimSpace(pair); pair == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		plain, err := url.PathUnescape(strings.TrimSpace(value))
		if name = strings.TrimSpace(name); !ok || name == "" || err != nil {
			return fmt.Errorf("write name=value, with a comma between two") // without the pair, which may be a credential
		}
		add(name, plain)
	}
	return nil
}

// errRefused is the error of what the collector refuses, however often it is sent.
var errRefused = errors.New("it is refused for good")

// send sends spans.
func (c *collector) send(ctx context.Context, spans []span) error {
	type object = map[string]any
	body, err := json.Marshal(object{"resourceSpans": []object{{
		"resource": object{"attributes": c.resource}, "scopeSpans": []object{{"scope": object{"name": "triphammer"}, "spans": spans}},
	}}})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.address, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header = c.headers.Clone()
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	said, _ := io.ReadAll(io.LimitReader(resp.Body, 300))
	switch resp.StatusCode {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return fmt.Errorf("%w: %s: %.300s", errRefused, resp.Status, said)
	}
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("it answered %s: %.300s", resp.Status, said)
	}
	return nil
}
