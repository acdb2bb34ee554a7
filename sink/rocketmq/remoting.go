package rocketmq

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
	"slices"
	"sync/atomic"
	"time"

	"github.com/canal-outbox/canal-outbox/sink"
)

// Codes of RocketMQ's remoting protocol (org.apache.rocketmq.remoting.protocol.RequestCode and ResponseCode) that this package
// uses.
const (
	requestSend      = 10
	requestHeartbeat = 34
	requestRoute     = 105
	requestClusters  = 106

	codeSuccess       = 0
	codeSystemError   = 1
	codeSystemBusy    = 2
	codeFlushDisk     = 10
	codeNoSlave       = 11
	codeFlushSlave    = 12
	codeIllegal       = 13
	codeUnavailable   = 14
	codeNoPermission  = 16
	codeNoTopic       = 17
	codeBadParameter  = 29
	codeFlowControl   = 215
	flagResponse      = 1
	maxResponse       = 64 << 20
	protocolVersion   = 415 // 5.0.1: every release since 4.0 answers it with plain JSON headers
	askTimeout        = time.Second
	headerLengthMask  = 0xffffff // the top byte is the header's serialization, 0 for JSON
	frameHeaderLength = 8
)

// header is the JSON header of a request or response.
type header struct {
	Code      int               `json:"code"`
	Language  string            `json:"language"`
	Version   int               `json:"version"`
	Opaque    int32             `json:"opaque"`
	Flag      int               `json:"flag"`
	Remark    string            `json:"remark,omitempty"`
	ExtFields map[string]string `json:"extFields,omitempty"`
}

// remoteError is an answer other than success.
type remoteError struct {
	code   int
	remark string
}

// Error has the form of the client library's broker errors, so that classify parses both.
func (e *remoteError) Error() string { return fmt.Sprintf("CODE: %d, DESC: %s", e.code, e.remark) }

// remoting sends single requests to name servers and brokers, each on a separate connection. The client library cannot: it offers
// neither routes nor a request without a message, it waits three seconds, and it shares one lock and one connection with the
// messages. Safe for concurrent use.
type remoting struct {
	nameServers          []string
	accessKey, secretKey string
	may                  func() bool   // see Config; called before a message is sent
	preferred            atomic.Uint32 // index of the name server that answered last
	opaque               atomic.Int32
}

// askNames sends a request to the name servers one after the other, the last one that answered first, and returns the first
// answer. Each has one second. An error that is a *remoteError is an answer.
func (r *remoting) askNames(ctx context.Context, code int, fields map[string]string) ([]byte, error) {
	first := int(r.preferred.Load())
	var failures []error
	for i := range r.nameServers {
		n := (first + i) % len(r.nameServers)
		_, body, err := r.ask(ctx, askTimeout, r.nameServers[n], code, fields, nil)
		if err == nil || errors.As(err, new(*remoteError)) {
			r.preferred.Store(uint32(n))
			return body, err
		}
		failures = append(failures, fmt.Errorf("name server %s: %w", r.nameServers[n], err))
	}
	return nil, errors.Join(failures...)
}

// ask sends one request and waits for its answer, at most until the limit.
func (r *remoting) ask(ctx context.Context, limit time.Duration, addr string, code int, fields map[string]string, body []byte) (header, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return header{}, nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })() // a frozen server accepts the connection and answers nothing
	if code == requestSend && r.may != nil && !r.may() {
		return header{}, nil, sink.ErrMayNot
	}
	response, answer, err := r.exchange(conn, code, fields, body)
	if ctx.Err() != nil {
		return header{}, nil, fmt.Errorf("%s accepted the connection but did not answer: %w", addr, ctx.Err())
	}
	return response, answer, err
}

func (r *remoting) exchange(conn net.Conn, code int, fields map[string]string, body []byte) (header, []byte, error) {
	request := header{
		Code: code, Language: "GO", Version: protocolVersion, Opaque: r.opaque.Add(1), ExtFields: r.sign(fields, body),
	}
	if err := writeFrame(conn, request, body); err != nil {
		return header{}, nil, err
	}
	for {
		response, answer, err := readFrame(conn)
		switch {
		case err != nil:
			return header{}, nil, err
		case response.Flag&flagResponse == 0 || response.Opaque != request.Opaque:
			continue // a request of the broker: none of them matters to a producer
		case response.Code != codeSuccess:
			return response, nil, &remoteError{response.Code, response.Remark}
		}
		return response, answer, nil
	}
}

// sign adds the access key and the signature of the ACL hook (AclClientRPCHook): HMAC-SHA1 over the values in the order
// of their names, then the body.
func (r *remoting) sign(fields map[string]string, body []byte) map[string]string {
	if r.accessKey == "" {
		return fields
	}
	signed := map[string]string{"AccessKey": r.accessKey}
	maps.Copy(signed, fields)
	mac := hmac.New(sha1.New, []byte(r.secretKey))
	for _, name := range slices.Sorted(maps.Keys(signed)) {
		io.WriteString(mac, signed[name]) // a hash never fails
	}
	mac.Write(body)
	signed["Signature"] = base64.StdEncoding.EncodeToString(mac.Sum(nil))
	return signed
}

// writeFrame writes total length, header length, header and body in one piece.
func writeFrame(w io.Writer, h header, body []byte) error {
	text, err := json.Marshal(h)
	if err != nil {
		return err
	}
	frame := binary.BigEndian.AppendUint32(nil, uint32(4+len(text)+len(body)))
	frame = binary.BigEndian.AppendUint32(frame, uint32(len(text)))
	frame = append(append(frame, text...), body...)
	_, err = w.Write(frame)
	return err
}

func readFrame(r io.Reader) (header, []byte, error) {
	var lengths [frameHeaderLength]byte
	if _, err := io.ReadFull(r, lengths[:]); err != nil {
		return header{}, nil, err
	}
	rest := int(binary.BigEndian.Uint32(lengths[:4])) - 4
	head := int(binary.BigEndian.Uint32(lengths[4:]) & headerLengthMask)
	if rest < head || rest > maxResponse {
		return header{}, nil, fmt.Errorf("a frame of %d bytes with a header of %d: this is not RocketMQ's remoting protocol", rest, head)
	}
	frame := make([]byte, rest)
	if _, err := io.ReadFull(r, frame); err != nil {
		return header{}, nil, err
	}
	var h header
	if err := json.Unmarshal(frame[:head], &h); err != nil {
		return header{}, nil, fmt.Errorf("header of a response: %w", err)
	}
	return h, frame[head:], nil
}

// ping returns nil when a broker answers a heartbeat, whatever the answer: a request that every client sends and that changes
// nothing. A frozen broker accepts the connection but does not answer.
func (r *remoting) ping(ctx context.Context, addr, client, group string) error {
	_, err := r.release(ctx, addr, client, group)
	return err
}

// release is ping and returns the number of the broker's release (org.apache.rocketmq.common.MQVersion), 0 when the broker does
// not report it.
func (r *remoting) release(ctx context.Context, addr, client, group string) (int, error) {
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
	answer, _, err := r.ask(ctx, askTimeout, addr, requestHeartbeat, nil, body)
	if errors.As(err, new(*remoteError)) {
		err = nil
	}
	return answer.Version, err
}
