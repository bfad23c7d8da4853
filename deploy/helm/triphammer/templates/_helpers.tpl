{{- define "triphammer.name" -}}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{- end }}
{{- define "triphammer.runs" -}}{{ .Values.runs.namespace | default .Release.Namespace }}{{- end }}
{{- define "triphammer.image" -}}{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion | required "image.tag is the version of Triphammer" }}{{- end }}
{{- define "triphammer.labels" -}}
app.kubernetes.io/name: triphammer
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}
{{- define "triphammer.selector" -}}
app.kubernetes.io/name: triphammer
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- /* The addresses of pods: those of IPv6, or those of IPv4. */ -}}
{{- define "triphammer.podCIDRs" -}}
{{- $six := index . 1 }}{{- $found := list }}
{{- range (index . 0).Values.networkPolicy.podCIDRs }}{{- if eq (contains ":" .) $six }}{{- $found = append $found . }}{{- end }}{{- end }}
{{- toJson $found }}
{{- end }}
{{- /* What a Deployment says of its pods: the root, and the name of the component, whose values have the name. */ -}}
{{- define "triphammer.podLabels" -}}
{{- $root := index . 0 }}{{- $component := index . 1 }}{{- $values := index . 2 }}
{{- with $values.podLabels }}{{ toYaml . }}
{{ end }}
{{- include "triphammer.selector" $root }}
app.kubernetes.io/component: {{ $component }}
{{- end }}
{{- define "triphammer.pod" -}}
{{- $root := index . 0 }}{{- $component := index . 1 }}{{- $values := index . 2 -}}
securityContext: {{- toYaml $root.Values.podSecurityContext | nindent 2 }}
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with $values.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- range . }}
  - {{- toYaml . | nindent 4 }}
    {{- if not .labelSelector }}
    labelSelector:
      matchLabels: {{- include "triphammer.podLabels" (list $root $component (dict)) | nindent 8 }}
    {{- end }}
  {{- end }}
{{- end }}
{{- end }}
{{- define "triphammer.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}
{{- define "triphammer.mounts" -}}
volumeMounts:
  - {name: data, mountPath: /data}
  - {name: tmp, mountPath: /tmp}
  - {name: store, mountPath: /etc/triphammer/store, readOnly: true}
  - {name: key, mountPath: /etc/triphammer/key, readOnly: true}
  {{- if .Values.store.ca.existingSecret }}
  - {name: store-ca, mountPath: /etc/triphammer/store-ca, readOnly: true}
  {{- end }}
  {{- if .Values.secrets.existingSecret }}
  - {name: secrets, mountPath: /etc/triphammer/secrets, readOnly: true}
  {{- end }}
  {{- with .Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- define "triphammer.volumes" -}}
- {name: data, emptyDir: {}}
- {name: tmp, emptyDir: {}}
- {name: store, secret: {secretName: {{ .Values.store.existingSecret | quote }}, defaultMode: 288, items: [{key: {{ .Values.store.key | quote }}, path: url}]}}
- {name: key, secret: {secretName: {{ .Values.sealingKey.existingSecret | quote }}, defaultMode: 288, items: [{key: {{ .Values.sealingKey.key | quote }}, path: key}]}}
{{- with .Values.store.ca }}
{{- if .existingSecret }}
- {name: store-ca, secret: {secretName: {{ .existingSecret | quote }}, defaultMode: 288, items: [{key: {{ .key | quote }}, path: ca.crt}]}}
{{- end }}
{{- end }}
{{- with .Values.secrets.existingSecret }}
- {name: secrets, secret: {secretName: {{ . | quote }}, defaultMode: 288}}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}
{{- define "triphammer.env" -}}
{{- /* A volume belongs to root, and lets others in: the program makes a folder of its own in it. */ -}}
- {name: TRIPHAMMER_DATA, value: /data/triphammer}
- {name: TRIPHAMMER_STORE_FILE, value: /etc/triphammer/store/url}
- {name: TRIPHAMMER_KEY_FILE, value: /etc/triphammer/key/key}
{{- if .Values.secrets.existingSecret }}
- {name: TRIPHAMMER_SECRETS_DIR, value: /etc/triphammer/secrets}
{{- end }}
{{- if .Values.store.ca.existingSecret }}
- {name: PGSSLROOTCERT, value: /etc/triphammer/store-ca/ca.crt}
{{- end }}
{{- end }}
