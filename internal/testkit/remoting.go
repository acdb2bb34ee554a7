package testkit

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"time"
)

// Request and response codes of RocketMQ's remoting protocol (org.apache.rocketmq.remoting.protocol.RequestCode and
// ResponseCode), as far as testkit uses them.
const (
	pullMessage       = 11
	createTopic       = 17
	getMaxOffset      = 30
	getMinOffset      = 31
	getRouteByTopic   = 105
	getBrokerClusters = 106

	remotingOK     = 0
	pullNotFound   = 19
	pullRetry      = 20
	pullMoved      = 21
	readWrite      = 6 // topic permission
	singleTag      = "SINGLE_TAG"
	responseMarker = 1 // bit of flag
)

// remoting is one connection to a name server or broker that has one request in flight at a time.
type remoting struct {
	conn   net.Conn
	opaque int
}

// frame is the header of a request or response.
type frame struct {
	Code      int               `json:"code"`
	Language  string            `json:"language"`
	Version   int               `json:"version"`
	Opaque    int               `json:"opaque"`
	Flag      int               `json:"flag"`
	Remark    string            `json:"remark,omitempty"`
	ExtFields map[string]string `json:"extFields,omitempty"`
}

// protocolVersion is that of release 4.9.7; 5.x answers it with the plain format that decodeMessages reads.
const protocolVersion = 415

func dialRemoting(ctx context.Context, addr string) (*remoting, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &remoting{conn: conn}, nil
}

func (r *remoting) close() { r.conn.Close() }

// call sends a request and waits for its response until the deadline of ctx, or five seconds. A code other than remotingOK
// is no error here.
func (r *remoting) call(ctx context.Context, code int, fields map[string]string) (frame, []byte, error) {
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(5 * time.Second)
	}
	if err := r.conn.SetDeadline(deadline); err != nil {
		return frame{}, nil, err
	}
	r.opaque++
	header, err := json.Marshal(frame{
		Code: code, Language: "OTHER", Version: protocolVersion, Opaque: r.opaque, ExtFields: fields,
	})
	if err != nil {
		return frame{}, nil, err
	}
	request := binary.BigEndian.AppendUint32(nil, uint32(4+len(header)))
	request = binary.BigEndian.AppendUint32(request, uint32(len(header))) // top byte 0: JSON header
	if _, err := r.conn.Write(append(request, header...)); err != nil {
		return frame{}, nil, err
	}
	for {
		response, body, err := r.receive()
		if err != nil {
			return frame{}, nil, err
		}
		if response.Flag&responseMarker != 0 && response.Opaque == r.opaque {
			return response, body, nil
		}
	}
}

// receive reads a frame: total length, header length, JSON header, body.
func (r *remoting) receive() (frame, []byte, error) {
	var lengths [8]byte
	if _, err := io.ReadFull(r.conn, lengths[:]); err != nil {
		return frame{}, nil, err
	}
	total := int(binary.BigEndian.Uint32(lengths[:4])) - 4
	headerLength := int(binary.BigEndian.Uint32(lengths[4:]) & 0xffffff)
	if total < headerLength || total > 64<<20 {
		return frame{}, nil, fmt.Errorf("frame of %d bytes with a header of %d", total, headerLength)
	}
	data := make([]byte, total)
	if _, err := io.ReadFull(r.conn, data); err != nil {
		return frame{}, nil, err
	}
	var header frame
	if err := json.Unmarshal(data[:headerLength], &header); err != nil {
		return frame{}, nil, fmt.Errorf("header of a response: %w", err)
	}
	return header, data[headerLength:], nil
}

// failure is the error of a response with an unwanted code.
func (f frame) failure() error { return fmt.Errorf("code %d: %s", f.Code, f.Remark) }

// ask opens a connection for a single request, which must succeed.
func ask(ctx context.Context, addr string, code int, fields map[string]string) (frame, []byte, error) {
	r, err := dialRemoting(ctx, addr)
	if err != nil {
		return frame{}, nil, err
	}
	defer r.close()
	response, body, err := r.call(ctx, code, fields)
	if err == nil && response.Code != remotingOK {
		err = response.failure()
	}
	return response, body, err
}
