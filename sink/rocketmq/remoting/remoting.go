// Package remoting speaks RocketMQ's remoting protocol, as far as the client library has no function for it: routes with addresses,
// a heartbeat without a message, one message on a connection of its own, and reading a topic without a consumer group.
//
// Guarantee: a request has one answer or one error, and ends with its limit and with its context. Error has the form of the
// library's broker errors. The package owns no goroutine; each Conn belongs to one caller.
package remoting

import (
	"context"
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"time"
)

// Requests (org.apache.rocketmq.remoting.protocol.RequestCode).
const (
	Send            = 10
	SendBatch       = 320
	Pull            = 11
	CreateTopic     = 17
	BrokerConfig    = 26
	BrokerRuntime   = 28
	SearchOffset    = 29
	MaxOffset       = 30
	MinOffset       = 31
	Heartbeat       = 34
	RouteOfTopic    = 105
	Clusters        = 106
	DeleteInBroker  = 215
	DeleteInNameSrv = 216
	HAStatus        = 907
)

// Answers (org.apache.rocketmq.remoting.protocol.ResponseCode).
const (
	Success       = 0
	SystemError   = 1
	SystemBusy    = 2
	NotSupported  = 3
	FlushDisk     = 10 // stored, but not on the disk in time
	NoSlave       = 11 // stored, but there is no replica
	FlushSlave    = 12 // stored, but not in the replica in time
	Illegal       = 13
	Unavailable   = 14
	NoPermission  = 16
	NoTopic       = 17
	PullNotFound  = 19
	PullRetry     = 20
	PullMoved     = 21
	NoGroup       = 26
	BadParameter  = 29
	FlowControl   = 215
	flagResponse  = 1
	maxResponse   = 64 << 20
	headerLengths = 0xffffff // the top byte is the header's serialization, 0 for JSON
)

// Version is the release that requests name, 5.0.1: every release since 4.0 answers it with plain JSON headers.
const Version = 415

// Header is the JSON header of a request or an answer.
type Header struct {
	Code      int               `json:"code"`
	Language  string            `json:"language"`
	Version   int               `json:"version"`
	Opaque    int32             `json:"opaque"`
	Flag      int               `json:"flag"`
	Remark    string            `json:"remark,omitempty"`
	ExtFields map[string]string `json:"extFields,omitempty"`
}

// Answers reports whether this is the answer to a request.
func (h Header) Answers(request Header) bool {
	return h.Flag&flagResponse != 0 && h.Opaque == request.Opaque
}

// To marks the header as the answer to a request.
func (h Header) To(request Header) Header {
	h.Opaque, h.Flag, h.Language = request.Opaque, flagResponse, "JAVA"
	return h
}

// Error is an answer other than Success.
type Error struct {
	Code   int
	Remark string
}

// Error has the form of the client library's broker errors, so that one function can classify both.
func (e *Error) Error() string { return fmt.Sprintf("CODE: %d, DESC: %s", e.Code, e.Remark) }

// IsCode reports whether an error is an answer with this code.
func IsCode(err error, code int) bool {
	var refused *Error
	return errors.As(err, &refused) && refused.Code == code
}

// Client sends requests to name servers and brokers. Its methods may be called from several goroutines.
type Client struct {
	Names      []string      // host:port of the name servers
	NamesLimit time.Duration // of a request to one name server
	AccessKey  string        // "" for requests without a signature
	SecretKey  func() string // is asked for each request

	preferred atomic.Uint32 // index of the name server that answered last
	opaque    atomic.Int32
}

// askNames sends a request to the name servers one after the other, the last one that answered first, and returns the first
// answer. An *Error is an answer.
func (c *Client) askNames(ctx context.Context, code int, fields map[string]string) ([]byte, error) {
	first := int(c.preferred.Load())
	var failures []error
	for i := range c.Names {
		n := (first + i) % len(c.Names)
		_, body, err := c.Ask(ctx, c.NamesLimit, c.Names[n], code, fields, nil)
		if err == nil || errors.As(err, new(*Error)) {
			c.preferred.Store(uint32(n))
			return body, err
		}
		failures = append(failures, fmt.Errorf("name server %s: %w", c.Names[n], err))
	}
	return nil, errors.Join(failures...)
}

// Ask sends one request on its own connection and waits for the answer; connecting is part of the limit.
func (c *Client) Ask(ctx context.Context, limit time.Duration, addr string, code int, fields map[string]string, body []byte) (Header, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	conn, err := c.Dial(ctx, addr)
	if err != nil {
		return Header{}, nil, err
	}
	defer conn.Close()
	return conn.Ask(limit, code, fields, body)
}

// Conn is a connection with one request in flight at a time. It breaks when its context ends: a frozen server accepts a connection
// and answers nothing.
type Conn struct {
	client *Client
	ctx    context.Context
	conn   net.Conn
	stop   func() bool
}

// Dial opens a connection.
func (c *Client) Dial(ctx context.Context, addr string) (*Conn, error) {
	d := net.Dialer{Timeout: 10 * time.Second}
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &Conn{c, ctx, conn, context.AfterFunc(ctx, func() { conn.Close() })}, nil
}

// Close closes the connection.
func (c *Conn) Close() {
	c.stop()
	c.conn.Close()
}

// Ask sends one request and waits for its answer, at most until the limit. The header is set with an *Error, too.
func (c *Conn) Ask(limit time.Duration, code int, fields map[string]string, body []byte) (Header, []byte, error) {
	if err := c.conn.SetDeadline(time.Now().Add(limit)); err != nil {
		return Header{}, nil, err
	}
	h, answer, err := c.exchange(code, fields, body)
	if c.ctx.Err() != nil {
		err = c.ctx.Err()
	}
	if errors.Is(err, os.ErrDeadlineExceeded) || c.ctx.Err() != nil {
		return Header{}, nil, fmt.Errorf("%s accepted the connection but did not answer: %w", c.conn.RemoteAddr(), err)
	}
	return h, answer, err
}

func (c *Conn) exchange(code int, fields map[string]string, body []byte) (Header, []byte, error) {
	request := Header{Code: code, Language: "GO", Version: Version, Opaque: c.client.opaque.Add(1), ExtFields: c.client.Sign(fields, body)}
	if err := WriteFrame(c.conn, request, body); err != nil {
		return Header{}, nil, err
	}
	for {
		h, answer, err := ReadFrame(c.conn)
		switch {
		case err != nil:
			return Header{}, nil, err
		case !h.Answers(request): // a request of the broker: none of them matters here
		case h.Code != Success:
			return h, nil, &Error{h.Code, h.Remark}
		default:
			return h, answer, nil
		}
	}
}

// Sign adds the access key and the signature of the ACL hook (AclClientRPCHook): HMAC-SHA1 over the values in the order of their
// names, then the body.
func (c *Client) Sign(fields map[string]string, body []byte) map[string]string {
	if c.AccessKey == "" {
		return fields
	}
	signed := map[string]string{"AccessKey": c.AccessKey}
	maps.Copy(signed, fields)
	mac := hmac.New(sha1.New, []byte(c.SecretKey()))
	for _, name := range slices.Sorted(maps.Keys(signed)) {
		io.WriteString(mac, signed[name]) // a hash never fails
	}
	mac.Write(body)
	signed["Signature"] = base64.StdEncoding.EncodeToString(mac.Sum(nil))
	return signed
}

// WriteFrame writes total length, header length, header and body in one piece.
func WriteFrame(w io.Writer, h Header, body []byte) error {
	text, err := json.Marshal(h)
	if err != nil {
		return err
	}
	frame := binary.BigEndian.AppendUint32(nil, uint32(4+len(text)+len(body)))
	frame = binary.BigEndian.AppendUint32(frame, uint32(len(text)))
	_, err = w.Write(slices.Concat(frame, text, body))
	return err
}

// ReadFrame reads what WriteFrame writes.
func ReadFrame(r io.Reader) (Header, []byte, error) {
	var h Header
	var lengths [8]byte
	if _, err := io.ReadFull(r, lengths[:]); err != nil {
		return h, nil, err
	}
	rest := int(binary.BigEndian.Uint32(lengths[:4])) - 4
	head := int(binary.BigEndian.Uint32(lengths[4:]) & headerLengths)
	if rest < head || rest > maxResponse {
		return h, nil, fmt.Errorf("a frame of %d bytes with a header of %d: this is not RocketMQ's remoting protocol", rest, head)
	}
	frame := make([]byte, rest)
	if _, err := io.ReadFull(r, frame); err != nil {
		return h, nil, err
	}
	if err := json.Unmarshal(frame[:head], &h); err != nil {
		return h, nil, fmt.Errorf("header of a frame: %w", err)
	}
	return h, frame[head:], nil
}

// Release sends a heartbeat, which every client sends and which changes nothing, and returns the number of the broker's release
// (org.apache.rocketmq.common.MQVersion), 0 when the broker does not report it. Any answer is a success.
func (c *Client) Release(ctx context.Context, limit time.Duration, addr, client, group string) (int, error) {
	type producer struct {
		GroupName string `json:"groupName"`
	}
	body, err := json.Marshal(struct {
		ClientID  string     `json:"clientID"`
		Producers []producer `json:"producerDataSet"`
		Consumers []producer `json:"consumerDataSet"`
	}{client, []producer{{group}}, []producer{}})
	if err != nil {
		return 0, err
	}
	h, _, err := c.Ask(ctx, limit, addr, Heartbeat, nil, body)
	if errors.As(err, new(*Error)) {
		err = nil
	}
	return h.Version, err
}
