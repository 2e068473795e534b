"""Flags of `vllm serve` that are no keys of a scenario, and what they do to the answer.

Names are those of vLLM 0.33.0 (engine/arg_utils.py, entrypoints/common/cli_args.py), and of older
versions where they are gone.
"""

from sim.core.flags import Effect, other_flags

OTHER_FLAGS = (
    other_flags(
        Effect.REFUSED,
        "pools, scores or embeds text instead of generating it",
        values="pooler-config",
    ),
    other_flags(
        Effect.REFUSED,
        "a scheduler of your own: name it as a user class (docs/how-to/plug-in.md)",
        values="scheduler-cls",
    ),
    other_flags(
        Effect.REFUSED,
        "is of a diffusion model",
        values="dc diffusion-config",
    ),
    other_flags(
        Effect.REFUSED,
        "launches a part of a server: give the command of its first node",
        switches="headless",
    ),
    other_flags(
        Effect.NOT_SIMULATED,
        "changes the model: give its config.json as model",
        values="hf-config-path hf-overrides model-class-overrides rope-scaling rope-theta",
        switches="disable-sliding-window",
    ),
    other_flags(
        Effect.NOT_SIMULATED,
        "the format of the checkpoint is taken",
        values="quantization-config quantization-param-path",
    ),
    other_flags(
        Effect.NOT_SIMULATED,
        "context parallelism: KV is spread over GPUs, so that the pool is larger",
        values="""
        cp-kv-cache-interleave-size dcp dcp-kv-cache-interleave-size
        decode-context-parallel-size pcp prefill-context-parallel-size
        """,
    ),
    other_flags(
        Effect.NOT_SIMULATED,
        "requests are dealt to ranks by a balancer outside of the server",
        values="data-parallel-rank dpn",
        switches="""
        data-parallel-external-lb data-parallel-hybrid-lb
        data-parallel-multi-port-external-lb dpe dph dpm
        """,
    ),
    other_flags(
        Effect.NOT_SIMULATED,
        "ranks come and go while the server runs",
        values="elastic-ep-max-dp-size fault-tolerance-config",
        switches="enable-elastic-ep enable-fault-tolerance",
    ),
    other_flags(
        Effect.NOT_SIMULATED,
        "how often ranks agree is that of the version",
        values="dp-sync-interval",
    ),
    other_flags(
        Effect.NOT_SIMULATED,
        "the size of the pool: give num_gpu_blocks_override",
        values="kv-cache-memory-bytes",
        lists="kv-cache-dtype-skip-layers",
    ),
    other_flags(
        Effect.NOT_SIMULATED,
        "cuts or limits a step in a way that is not known here",
        values="""
        max-long-partial-prefills max-num-partial-prefills max-num-scheduled-tokens
        multi-step-stream-outputs num-lookahead-slots num-scheduler-steps preemption-mode
        scheduler-delay-factor
        """,
        switches="""
        disable-chunked-mm-input kv-sharing-fast-prefill swa-bounded-replay
        use-v2-block-manager
        """,
    ),
    other_flags(
        Effect.NOT_SIMULATED,
        "which states are kept, and how large they are: give scheduler.kv_cache_groups",
        values="""
        mamba-block-size mamba-cache-dtype mamba-cache-mode mamba-ssm-cache-dtype
        prefix-match-unit replayssm-buffer-len
        """,
        switches="enable-mamba-shared-prefix-checkpoint use-replayssm",
    ),
    other_flags(
        Effect.NOT_SIMULATED,
        "KV that is kept outside of the GPU is not found again",
        values="kv-offloading-backend kv-offloading-size",
    ),
    other_flags(
        Effect.NOT_SIMULATED,
        "weights outside of the GPU leave more memory for KV: give num_gpu_blocks_override",
        values="""
        cpu-offload-gb offload-backend offload-group-size offload-num-in-group
        offload-prefetch-step
        """,
        lists="cpu-offload-params offload-params",
    ),
    other_flags(
        Effect.NOT_SIMULATED,
        "adapters (LoRA) limit which requests a step may have",
        values="""
        default-mm-loras lora-dtype lora-extra-vocab-size max-cpu-loras max-lora-cls-labels
        max-lora-rank max-loras max-prompt-adapters
        """,
        switches="""
        enable-lora enable-mixed-moe-lora-format enable-moe-shared-loras
        enable-prompt-adapter enable-tower-connector-lora fully-sharded-loras
        specialize-active-lora
        """,
        lists="lora-modules lora-target-modules",
    ),
    other_flags(
        Effect.TIME,
        values="""
        ac additional-config all2all-backend attention-backend attention-config cc
        compilation-config dbo-decode-token-threshold dbo-prefill-token-threshold
        dcp-comm-backend engram-config eplb-config expert-placement-strategy
        gdn-prefill-backend ir-op-priority kda-decode-backend kda-prefill-backend
        kernel-config linear-backend mamba-backend mamba-cache-philox-rounds
        mamba-ssu-algorithm max-seq-len-to-capture moe-backend num-redundant-experts
        optimization-level renderer-num-workers sparse-indexer-topk-backend ubatch-size
        worker-cls worker-extension-cls
        """,
        switches="""
        dcp-q-replicate disable-async-output-proc disable-cascade-attn
        disable-custom-all-reduce disable-frontend-multiprocessing
        disable-nccl-for-dp-synchronization enable-batch-sharded-sampling enable-dbo
        enable-eplb enable-flashinfer-autotune enable-hc-sp
        enable-mamba-cache-stochastic-rounding enable-nccl-comm-suspend
        enable-shm-tensor-arena enforce-eager monokernel numa-bind use-fp64-gumbel
        """,
        lists="cudagraph-capture-sizes numa-bind-cpus numa-bind-nodes",
    ),
    other_flags(
        Effect.NOTHING,
        values="""
        allowed-headers allowed-methods allowed-origins anthropic-disabled-thinking-effort
        aux-output-config chat-template chat-template-content-format code-revision
        cohere-format config-format cpu-distributed-timeout-seconds custom-histogram-buckets
        data-parallel-address data-parallel-backend data-parallel-rpc-port
        data-parallel-size-local data-parallel-start-rank data-parallel-supervisor-port
        default-chat-template-kwargs device disable-access-log-for-endpoints
        distributed-executor-backend distributed-timeout-seconds download-dir
        dp-supervisor-probe-failure-threshold dp-supervisor-probe-interval-s
        dp-supervisor-probe-timeout-s dpa dpb dpl dpp dpr dtype fingerprint-mode
        fingerprint-value generation-config grpc-port guided-decoding-backend
        h11-max-header-count h11-max-incomplete-event-size hf-token host ignore-patterns
        io-processor-plugin jit-monitor-mode kv-cache-metrics-sample kv-events-config
        load-format log-config-file log-level logging-config logprobs-mode master-addr
        master-port max-log-len max-logprobs max-parallel-loading-workers middleware
        model-impl model-loader-extra-config n nnodes node-rank otlp-traces-endpoint
        override-generation-config override-neuron-config per-request-spec-decode-metrics
        port prefix-caching-hash-algo profiler-config pt-load-map-location r
        reasoning-config reasoning-effort-map reasoning-parser reasoning-parser-plugin
        response-role revision root-path safetensors-load-strategy
        safetensors-prefetch-block-size safetensors-prefetch-num-threads seed
        show-hidden-metrics-for-version shutdown-timeout sleep-mode-backend
        sse-keep-alive-interval ssl-ca-certs ssl-cert-reqs ssl-certfile ssl-ciphers
        ssl-keyfile structured-outputs-config swap-space tokenizer tokenizer-mode
        tokenizer-pool-size tokenizer-revision tool-call-parser tool-parser-plugin
        tool-server tool-strict-level uds uvicorn-log-level watchdog-config watermark-config
        weight-transfer-config
        """,
        switches="""
        aggregate-engine-logging allow-credentials allow-deprecated-quantization
        cohere-is-reasoning-model cudagraph-metrics disable-fastapi-docs
        disable-log-requests disable-log-stats disable-uvicorn-access-log
        enable-auto-tool-choice enable-cumem-allocator enable-ep-weight-filter
        enable-flash-late-interaction enable-force-include-usage
        enable-layerwise-nvtx-tracing enable-log-deltas enable-log-outputs
        enable-log-requests enable-logging-iteration-details enable-mfu-metrics
        enable-offline-docs enable-per-request-metrics enable-prompt-tokens-details
        enable-reasoning enable-request-id-headers enable-return-routed-experts
        enable-scale-out enable-server-load-tracking enable-sleep-mode enable-ssl-refresh
        enable-tokenizer-info-endpoint enable-trace-replay engine-use-ray
        exclude-tools-when-tool-choice-none fail-on-environ-validation grpc
        jit-monitor-verbose kv-cache-metrics log-error-stack ray-workers-use-nsight
        return-sampling-mask return-tokens-as-token-ids skip-tokenizer-init
        sleep-mode-offload-cudagraph tokens-only trust-remote-code
        trust-request-chat-template use-tqdm-on-load worker-use-ray
        """,
        lists="""
        api-key collect-detailed-traces device-ids logits-processors
        long-lora-scaling-factors served-model-name sleep-preserve-parameter-names
        """,
    ),
    other_flags(
        Effect.NOTHING,
        "requests here are text of a given length",
        values="""
        allowed-local-media-path ec-manager-config ec-transfer-config limit-mm-per-prompt
        media-io-kwargs mm-encoder-attn-backend mm-encoder-attn-dtype
        mm-encoder-fp8-scale-path mm-encoder-fp8-scale-save-margin
        mm-encoder-fp8-scale-save-path mm-encoder-tp-mode mm-hasher-algorithm
        mm-ipc-gpu-memory-gb mm-processor-cache-gb mm-processor-cache-type
        mm-processor-device mm-processor-kwargs mm-shm-cache-max-object-size-mb
        mm-tensor-ipc video-pruning-method video-pruning-rate
        """,
        switches="""
        disable-mm-preprocessor-cache enable-mm-embeds enable-prompt-embeds
        interleave-mm-strings language-model-only mm-cache-preprocessor
        mm-device-do-normalize mm-encoder-only skip-mm-profiling trust-request-mm-kwargs
        """,
        lists="allowed-media-domains",
    ),
)
