// Command interop puts the Go packages of senders behind the same two questions
// as testdata/npm/senders/senders.mjs: sign this body as your service does, or
// say whether this request is of your service. One JSON object a line comes in,
// one goes out; {"op":"list"} tells what is here.
package main

import (
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/PaddleHQ/paddle-go-sdk/v4"
	"github.com/PagerDuty/go-pagerduty/webhookv3"
	"github.com/bwmarrin/discordgo"
	"github.com/google/go-github/v72/github"
	linewebhook "github.com/line/line-bot-sdk-go/v8/linebot/webhook"
	"github.com/sendgrid/sendgrid-go/helpers/eventwebhook"
	"github.com/slack-go/slack"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stripe/stripe-go/v82/webhook"
	svix "github.com/svix/svix-webhooks/go"
	"github.com/twilio/twilio-go/client"
)

// question is a line of standard input; the header names are in lower case.
type question struct {
	Op, Package, Scheme string
	Secret, URL, Body   string
	Headers             map[string]string
}

// request is what a package's own handler is given.
func (q *question) request() *http.Request {
	r, err := http.NewRequest(http.MethodPost, q.URL, strings.NewReader(q.Body))
	if err != nil {
		return &http.Request{Header: http.Header{}, Body: http.NoBody}
	}
	for name, value := range q.Headers {
		r.Header.Set(name, value)
	}
	return r
}

var errRefused = errors.New("refused")

func refusedUnless(ok bool) error {
	if !ok {
		return errRefused
	}
	return nil
}

// signer is a package's own webhook of one secret.
type signer interface {
	Sign(id string, at time.Time, payload []byte) (string, error)
	Verify(payload []byte, headers http.Header) error
}

// threeHeaders signs as Standard Webhooks and Svix do.
func threeHeaders(name string, w signer, err error, q *question) (map[string]string, error) {
	if err != nil {
		return nil, err
	}
	at, id := time.Now(), "msg_"+strconv.Itoa(len(q.Body))
	signature, err := w.Sign(id, at, []byte(q.Body))
	return map[string]string{name + "-id": id, name + "-timestamp": strconv.FormatInt(at.Unix(), 10), name + "-signature": signature}, err
}

func checked(w signer, err error, q *question) error {
	if err != nil {
		return err
	}
	return w.Verify([]byte(q.Body), q.request().Header)
}

var senders = []struct {
	module, scheme string
	sign           func(*question) (map[string]string, error)
	verify         func(*question) error
}{
	{
		module: "github.com/PaddleHQ/paddle-go-sdk/v4", scheme: "paddle",
		verify: func(q *question) error {
			ok, err := paddle.NewWebhookVerifier(q.Secret).Verify(q.request())
			return errors.Join(err, refusedUnless(ok))
		},
	},
	{
		module: "github.com/PagerDuty/go-pagerduty", scheme: "pagerduty",
		verify: func(q *question) error { return webhookv3.VerifySignature(q.request(), q.Secret) },
	},
	{
		module: "github.com/bwmarrin/discordgo", scheme: "discord",
		verify: func(q *question) error {
			key, err := hex.DecodeString(q.Secret)
			if err != nil {
				return err
			}
			return refusedUnless(discordgo.VerifyInteraction(q.request(), ed25519.PublicKey(key)))
		},
	},
	{
		module: "github.com/google/go-github/v72", scheme: "github",
		verify: func(q *question) error {
			_, err := github.ValidatePayload(q.request(), []byte(q.Secret))
			return err
		},
	},
	{
		module: "github.com/line/line-bot-sdk-go/v8", scheme: "line",
		verify: func(q *question) error {
			return refusedUnless(linewebhook.ValidateSignature(q.Secret, q.Headers["x-line-signature"], []byte(q.Body)))
		},
	},
	{
		module: "github.com/sendgrid/sendgrid-go", scheme: "sendgrid",
		verify: func(q *question) error {
			key, err := eventwebhook.ConvertPublicKeyBase64ToECDSA(q.Secret)
			if err != nil {
				return err
			}
			header := q.request().Header
			ok, err := eventwebhook.VerifySignature(key, []byte(q.Body), header.Get(eventwebhook.VerificationHTTPHeader), header.Get(eventwebhook.TimestampHTTPHeader))
			return errors.Join(err, refusedUnless(ok))
		},
	},
	{
		module: "github.com/slack-go/slack", scheme: "slack",
		verify: func(q *question) error {
			v, err := slack.NewSecretsVerifier(q.request().Header, q.Secret)
			if err != nil {
				return err
			}
			if _, err := v.Write([]byte(q.Body)); err != nil {
				return err
			}
			return v.Ensure()
		},
	},
	{
		module: "github.com/standard-webhooks/standard-webhooks/libraries", scheme: "standard_webhooks",
		sign: func(q *question) (map[string]string, error) {
			w, err := standardwebhooks.NewWebhook(q.Secret)
			return threeHeaders("webhook", w, err, q)
		},
		verify: func(q *question) error {
			w, err := standardwebhooks.NewWebhook(q.Secret)
			return checked(w, err, q)
		},
	},
	{
		module: "github.com/stripe/stripe-go/v82", scheme: "stripe",
		sign: func(q *question) (map[string]string, error) {
			signed := webhook.GenerateTestSignedPayload(&webhook.UnsignedPayload{Payload: []byte(q.Body), Secret: q.Secret})
			return map[string]string{"stripe-signature": signed.Header}, nil
		},
		verify: func(q *question) error {
			return webhook.ValidatePayload([]byte(q.Body), q.Headers["stripe-signature"], q.Secret)
		},
	},
	{
		module: "github.com/svix/svix-webhooks", scheme: "svix",
		sign: func(q *question) (map[string]string, error) {
			w, err := svix.NewWebhook(q.Secret)
			return threeHeaders("svix", w, err, q)
		},
		verify: func(q *question) error {
			w, err := svix.NewWebhook(q.Secret)
			return checked(w, err, q)
		},
	},
	{
		module: "github.com/twilio/twilio-go", scheme: "twilio_json",
		verify: func(q *question) error {
			v := client.NewRequestValidator(q.Secret)
			return refusedUnless(v.ValidateBody(q.URL, []byte(q.Body), q.Headers["x-twilio-signature"]))
		},
	},
}

// versions are what was built in, by module.
func versions() map[string]string {
	all := map[string]string{}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			all[module.Path] = strings.TrimPrefix(strings.TrimSuffix(module.Version, "+incompatible"), "v")
		}
	}
	return all
}

func list() any {
	version := versions()
	var all []map[string]any
	for _, s := range senders {
		all = append(all, map[string]any{
			"package": s.module, "version": version[s.module], "scheme": s.scheme,
			"signs": s.sign != nil, "verifies": s.verify != nil,
		})
	}
	return all
}

func answer(q *question) any {
	if q.Op == "list" {
		return list()
	}
	for _, s := range senders {
		switch {
		case s.module != q.Package || s.scheme != q.Scheme:
		case q.Op == "sign" && s.sign != nil:
			headers, err := s.sign(q)
			if err != nil {
				return map[string]any{"error": err.Error()}
			}
			return map[string]any{"url": q.URL, "body": q.Body, "headers": headers}
		case q.Op == "verify" && s.verify != nil:
			if err := s.verify(q); err != nil {
				return map[string]any{"verified": false, "error": err.Error()}
			}
			return map[string]any{"verified": true}
		}
	}
	return map[string]any{"error": q.Package + " cannot " + q.Op}
}

func main() {
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var q question
		if err := in.Decode(&q); err != nil {
			return // the tester is done
		}
		if err := out.Encode(answer(&q)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}
