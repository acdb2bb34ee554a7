# Stands in for the official image of Go on machines that reach no image registry; engine.sh lays the context out and builds it.
FROM standin
COPY go /usr/local/go
COPY modules /modules
ENV PATH=/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin GOPROXY=file:///modules GOSUMDB=off GOTOOLCHAIN=local
