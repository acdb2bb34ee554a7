package server

import (
	"context"
	"crypto/tls"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

// E2, column "MySQL writer", and what else a connection can answer.
func TestE2_Classes(t *testing.T) {
	answer := func(code uint16, state string) error {
		e := &mysql.MySQLError{Number: code, Message: "x"}
		copy(e.SQLState[:], state)
		return fmt.Errorf("wrapped: %w", e)
	}
	for _, c := range []struct {
		err  error
		want Class
	}{
		{answer(1213, "40001"), Transient},
		{answer(1205, "HY000"), Transient},
		{answer(3024, "HY000"), Transient},
		{answer(1317, "70100"), Transient},
		{answer(1040, "08004"), Busy},
		{answer(1203, "42000"), Busy},
		{answer(1226, "42000"), Busy},
		{answer(3032, "HY000"), Busy},
		{answer(2006, ""), Lost},
		{answer(2013, ""), Lost},
		{answer(1053, "08S01"), Lost},
		{answer(1927, "70100"), Lost},
		{answer(1044, "42000"), Service},
		{answer(1045, "28000"), Service},
		{answer(1142, "42000"), Service},
		{answer(1146, "42S02"), Service},
		{answer(1054, "42S22"), Service},
		{answer(1290, "HY000"), ReadOnly},
		{answer(1836, "HY000"), ReadOnly},
		{&ReadOnlyError{}, ReadOnly},
		{answer(1406, "22001"), Data},
		{answer(1644, "45000"), Data},
		{answer(1364, "HY000"), Data},
		{answer(1369, "44000"), Data},
		{answer(1526, "HY000"), Data},
		{answer(3819, "HY000"), Data},
		{answer(4025, "23000"), Data},
		{answer(9999, "22999"), Data},
		{answer(9999, "23999"), Data},
		{answer(9999, "28999"), Service},
		{answer(9999, "08999"), Lost},
		{answer(1236, "HY000"), Gap},
		{answer(1373, "HY000"), Gap},
		{answer(4052, "HY000"), Fenced},
		{answer(1064, "42000"), Other},
		{&RefusedError{Err: errors.New("x")}, Service},
		{fmt.Errorf("x: %w", driver.ErrBadConn), Lost},
		{mysql.ErrInvalidConn, Lost},
		{io.ErrUnexpectedEOF, Lost},
		{context.DeadlineExceeded, Lost},
		{&net.OpError{Op: "dial", Err: errors.New("refused")}, Lost},
		{errors.New("x"), Other},
		{nil, Other},
	} {
		if got := Classify(c.err); got != c.want {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
	}
}

// A server that answers with an alert, and one that chooses an old version all the same, as MySQL 5.7.22 does.
func TestOldTLS(t *testing.T) {
	certificates, err := testkit.NewCertificates()
	testkit.Must(t, err)
	pair, err := tls.X509KeyPair(certificates.Cert, certificates.Key)
	testkit.Must(t, err)
	for highest, old := range map[uint16]bool{tls.VersionTLS11: true, tls.VersionTLS12: false} {
		ours, theirs := net.Pipe()
		go func() {
			_ = tls.Server(theirs, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS10, MaxVersion: highest}).Handshake()
		}()
		err := tls.Client(ours, &tls.Config{RootCAs: certificates.Pool(), ServerName: "localhost", MinVersion: tls.VersionTLS12}).Handshake()
		if OldTLS(fmt.Errorf("connect: %w", err)) != old || (err != nil) != old {
			t.Errorf("a server with %x at most: %v", highest, err)
		}
		testkit.Must(t, theirs.Close())
	}
	if !OldTLS(errors.New("tls: server selected unsupported protocol version 302")) || OldTLS(nil) {
		t.Error("the choice of an old version is not seen")
	}
}
