package informerd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	firstDelay = 200 * time.Millisecond
	// Also of what an error asks for: a client that is told to wait for longer would seem to hang.
	longestDelay = 10 * time.Second
	// An outage is told of when it begins, this often while it lasts, and when it is over.
	reminder = 30 * time.Second
)

// One stream after the other, until the context ends or asking again cannot help. Each says how long to wait before the
// next one, and calls `alive` when informerd has answered it.
func (c *Client) again(ctx context.Context, what string, stream func(ctx context.Context, alive func()) (time.Duration, error)) error {
	refused := outage{what: what, fails: "fails", recovers: "goes on"}
	delay := firstDelay
	for {
		started := time.Now()
		wait, err := stream(ctx, func() {
			c.unreachable.over(c.logger, c.address)
			refused.over(c.logger, c.address)
		})
		if time.Since(started) > longestDelay {
			delay = firstDelay // It went well for a while.
		}
		var last *final
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &last):
			return last.error
		case err != nil:
			said, asked := detailsOf(err)
			if c.permanent(err, said) {
				return fmt.Errorf("informerd at %s, %s: %w%s", c.address, what, err, hint(said))
			}
			if said == nil {
				c.unreachable.failed(c.logger, c.address, err)
			} else {
				refused.failed(c.logger, c.address, err)
			}
			// Clients that were cut off together do not come back together.
			wait = max(delay/2+rand.N(delay), min(asked, longestDelay))
			delay = min(2*delay, longestDelay)
		default:
			wait = max(rand.N(firstDelay), min(wait, longestDelay))
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// An error of this side, which no other stream changes.
type final struct{ error }

func detailsOf(err error) (said *errdetails.ErrorInfo, asked time.Duration) {
	for _, detail := range status.Convert(err).Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			if detail.Domain == "informerd.io" {
				said = detail
			}
		case *errdetails.RetryInfo:
			asked = detail.RetryDelay.AsDuration()
		}
	}
	return said, asked
}

// Only what informerd itself has said can be: without its ErrorInfo, an error is the library's or a proxy's word on the
// connection.
func (c *Client) permanent(err error, said *errdetails.ErrorInfo) bool {
	if said == nil {
		return false
	}
	switch status.Code(err) {
	case codes.InvalidArgument, codes.NotFound, codes.PermissionDenied, codes.Unimplemented:
		return true
	case codes.Unauthenticated:
		return !c.refreshable
	case codes.FailedPrecondition:
		// What this informerd is configured not to cache. The other reasons pass.
		switch said.Reason {
		case "EXCLUDED", "NOT_READABLE", "AGGREGATED", "OUT_OF_SCOPE", "UNSUPPORTED":
			return true
		}
	}
	return false
}

func hint(said *errdetails.ErrorInfo) string {
	if said.Reason == "UNKNOWN_RESOURCE" {
		return " (is it spelt as in `kubectl api-resources`: group, version, and the plural name in lower case?)"
	}
	return ""
}

// What is wrong for now, told of seldom.
type outage struct {
	// Its subject and predicates.
	what, fails, recovers string

	mutex       sync.Mutex
	since, told time.Time
	attempts    int
}

func (o *outage) failed(logger *slog.Logger, address string, err error) {
	if errors.Is(err, io.EOF) {
		err = errors.New("the stream has ended")
	}
	o.mutex.Lock()
	defer o.mutex.Unlock()
	now := time.Now()
	o.attempts++
	switch {
	case o.since.IsZero():
		o.since, o.told = now, now
		logger.Warn(o.what+" "+o.fails+"; trying again", "address", address, "error", err)
	case now.Sub(o.told) >= reminder:
		o.told = now
		logger.Warn(o.what+" still "+o.fails, "address", address, "error", err,
			"for", now.Sub(o.since).Round(time.Second), "attempts", o.attempts)
	}
}

func (o *outage) over(logger *slog.Logger, address string) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if !o.since.IsZero() {
		logger.Info(o.what+" "+o.recovers, "address", address, "after", time.Since(o.since).Round(time.Millisecond))
	}
	o.since, o.attempts = time.Time{}, 0
}
