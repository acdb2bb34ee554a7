{{/* Names and labels. Each takes a list of the root and the source. */}}
{{- define "canal-outbox.name" -}}
{{ printf "%s-%s" (index . 0).Release.Name (index . 1).name }}
{{- end }}

{{- define "canal-outbox.selector" -}}
app.kubernetes.io/name: canal-outbox
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
canal-outbox/source: {{ (index . 1).name | quote }}
{{- end }}

{{- define "canal-outbox.labels" -}}
{{ include "canal-outbox.common" (index . 0) }}
canal-outbox/source: {{ (index . 1).name | quote }}
{{- end }}

{{/* Labels of everything. It takes the root. */}}
{{- define "canal-outbox.common" -}}
app.kubernetes.io/name: canal-outbox
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/* The configuration of a source: its own, the state directory, and the relays of the other sources. */}}
{{- define "canal-outbox.config" -}}
{{- $root := index . 0 }}{{- $source := index . 1 }}
{{- $config := deepCopy $source.config }}
{{- $_ := set $config "checkpoint" (dict "dir" "/var/lib/canal-outbox") }}
{{- if and $root.Values.peers (gt (len $root.Values.sources) 1) }}
{{- $admin := $config.admin | default dict }}
{{- $peers := $admin.peers | default list }}
{{- range $other := $root.Values.sources }}
{{- if ne $other.name $source.name }}
{{- $service := include "canal-outbox.name" (list $root $other) }}
{{- range $n := until (int (default 2 $other.replicas)) }}
{{- $url := printf "http://%s-%d.%s.%s.svc:9180" $service $n $service $root.Release.Namespace }}
{{- $peers = append $peers (dict "url" $url "token_file" "/run/secrets/canal-outbox/admin-token") }}
{{- end }}
{{- end }}
{{- end }}
{{- $_ := set $config "admin" (set $admin "peers" $peers) }}
{{- end }}
{{- toYaml $config }}
{{- end }}
