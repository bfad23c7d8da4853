{{- define "triphammer.name" -}}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{- end }}
{{- define "triphammer.runs" -}}{{ .Values.runs.namespace | default .Release.Namespace }}{{- end }}
{{- define "triphammer.image" -}}{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{- end }}
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
{{- define "triphammer.podSecurity" -}}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
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
{{- end }}
{{- define "triphammer.volumes" -}}
- {name: data, emptyDir: {}}
- {name: tmp, emptyDir: {}}
- {name: store, secret: {secretName: {{ .Values.store.existingSecret | quote }}, defaultMode: 288, items: [{key: {{ .Values.store.key | quote }}, path: url}]}}
- {name: key, secret: {secretName: {{ .Values.sealingKey.existingSecret | quote }}, defaultMode: 288, items: [{key: {{ .Values.sealingKey.key | quote }}, path: key}]}}
{{- end }}
{{- define "triphammer.env" -}}
{{- /* A volume belongs to root, and lets others in: the program makes a folder of its own in it. */ -}}
- {name: TRIPHAMMER_DATA, value: /data/triphammer}
- {name: TRIPHAMMER_STORE_FILE, value: /etc/triphammer/store/url}
- {name: TRIPHAMMER_KEY_FILE, value: /etc/triphammer/key/key}
{{- end }}
