"""Flags of SGLang's server that are no keys of a scenario, and what they do to the answer.

Names are those of SGLang 0.5.23 (srt/arg_groups/fields/, srt/server_args.py), and of older versions
where they are gone.
"""

from sim.core.flags import Effect, other_flags

OTHER_FLAGS = (
    other_flags(
        Effect.REFUSED,
        "embeds, scores or encodes instead of generating",
        switches="enable-mis encoder-only is-embedding prefill-only-disable-kv-cache",
    ),
    other_flags(
        Effect.REFUSED,
        "is of a diffusion model",
        values="dllm-algorithm dllm-algorithm-config",
    ),
    other_flags(
        Effect.NOT_SIMULATED,
        "steps are decided in another way than simulated",
        values="""
        decoupled-spec-bind-endpoint decoupled-spec-connect-endpoints decoupled-spec-rank
        decoupled-spec-role disaggregation-decode-allocation-policy
        optimistic-prefill-attempts pdmux-config-path rl-on-policy-target sm-group-num
        speculative-adaptive-config speculative-dflash-block-size
        speculative-domino-candidate-pool-size speculative-dspark-block-size
        speculative-dspark-confidence-sts-path speculative-dspark-sps-table-path
        """,
        switches="""
        allow-auto-truncate enable-deterministic-inference enable-multi-layer-eagle
        enable-pdmux speculative-adaptive
        speculative-dspark-align-verify-tokens-to-graph-tier
        """,
    ),
    other_flags(
        Effect.NOT_SIMULATED,
        "KV outside of the GPU: set scheduler.host_cache, which keeps it in host memory",
        values="""
        disaggregation-decode-host-receive-threshold flexkv-config-file
        hicache-host-memory-fraction hicache-host-memory-mode hicache-size
        hicache-storage-backend hicache-storage-backend-extra-config
        hicache-storage-metadata-capacity hicache-storage-prefetch-policy
        hicache-storage-prefetch-retry-max-attempts
        hicache-storage-prefetch-retry-poll-interval lmcache-config-file radix-cache-backend
        unified-cache-external-linker-backend unified-cache-external-linker-config
        """,
        switches="""
        disaggregation-decode-enable-offload-kvcache enable-flexkv enable-linker-mla-dedup
        enable-lmcache enable-unified-cache-external-linker
        """,
    ),
    other_flags(
        Effect.NOT_SIMULATED,
        "ranks come and go while the server runs",
        values="""
        elastic-ep-backend elastic-ep-initial-size elastic-ep-join-mode
        elastic-ep-join-rank-offset elastic-ep-scale-timeout max-ep-size
        """,
        switches="enable-elastic-expert-backup enable-pd-role-switch",
    ),
    other_flags(
        Effect.NOT_SIMULATED,
        "keeps KV in the cache in a way that is not known here",
        values="""
        c128-page-size hierarchical-sparse-attention-extra-config hisparse-config
        swa-prefix-tails
        """,
        switches="""
        enable-decoder-swa-bounded-replay enable-encoder-swa-bounded-replay enable-hisparse
        enable-session-radix-cache enable-streaming-session enable-unified-memory
        strip-thinking-cache
        """,
    ),
    other_flags(
        Effect.NOT_SIMULATED,
        "the format of the checkpoint is taken",
        values="""
        modelopt-quant prefill-kv-cache-dequant-dtype quantization-param-path
        rl-quant-profile speculative-draft-kv-cache-dtype
        speculative-draft-model-quantization speculative-draft-sink-size
        speculative-draft-window-size
        """,
        switches="quantize-and-serve",
    ),
    other_flags(
        Effect.NOT_SIMULATED,
        "which states are kept, and how large they are",
        values="""
        int8-mamba-ckpt-size linear-replayssm-cache-len mamba-max-states-per-path
        mamba-scheduler-strategy
        """,
        switches="""
        enable-int8-mamba-checkpoint enable-linear-replayssm enable-linear-replayssm-spec
        """,
    ),
    other_flags(
        Effect.NOT_SIMULATED,
        "weights outside of the GPU leave more memory for KV: give max_total_tokens",
        values="""
        cpu-offload-gb kt-cpuinfer kt-max-deferred-experts-per-token kt-method
        kt-num-gpu-experts kt-threadpool-count kt-weight-path offload-group-size
        offload-mode offload-num-in-group offload-prefetch-step paged-experts-num-resident
        ple-offload-backend ple-offload-dir
        """,
        switches="enable-paged-experts ple-offload-embedding",
    ),
    other_flags(
        Effect.NOT_SIMULATED,
        "adapters (LoRA) limit which requests a batch may have",
        values="""
        lora-backend lora-drain-wait-threshold lora-eviction-policy max-loaded-loras
        max-lora-chunk-size max-lora-rank max-loras-per-batch uno-lora-path
        """,
        switches="""
        enable-lora enable-lora-overlap-loading experts-shared-outer-loras
        lora-strict-loading lora-use-virtual-experts
        """,
        lists="lora-paths lora-target-modules",
    ),
    other_flags(
        Effect.NOT_SIMULATED,
        "changes the model: give its config.json as model",
        values="json-model-override-args",
    ),
    other_flags(
        Effect.NOT_SIMULATED,
        "context parallelism: KV is spread over GPUs, so that the pool is larger",
        values="""
        attention-context-parallel-size attn-cp-size cp-strategy dcp-size
        decode-context-parallel-size
        """,
        switches="""
        enable-cp-decode-attn-tp enable-dsa-cache-layer-split enable-kv-cache-sharding
        enable-prefill-cp
        """,
    ),
    other_flags(
        Effect.NOT_SIMULATED,
        "micro-batches of a pipeline are those of the default",
        values="max-micro-batch-size pp-async-batch-depth pp-max-micro-batch-size",
        switches="enable-dynamic-chunking",
    ),
    other_flags(
        Effect.NOT_SIMULATED,
        "how experts and attention share the GPUs is not known",
        values="dwdp-size moe-data-parallel-size moe-dp-size",
    ),
    other_flags(
        Effect.NOT_SIMULATED,
        "steps read only a part of the KV",
        values="ds-channel-config-path",
        switches="enable-double-sparsity",
    ),
    other_flags(
        Effect.TIME,
        values="""
        attention-backend bf16-gemm-backend boundary-reduction context-bucket
        cuda-graph-backend-decode cuda-graph-backend-prefill cuda-graph-config
        cuda-graph-max-bs-prefill cuda-graph-max-seq-len-prefill
        cuda-graph-prefill-max-context dcp-comm-backend decode-attention-backend
        deepep-config deepep-dispatcher-output-dtype deepep-mode deepep-v2-mode
        detokenizer-worker-num dsa-decode-backend dsa-paged-mqa-logits-backend
        dsa-prefill-backend dsa-topk-backend dsa-triton-union dsv4-attn-backend
        dsv4-prefill-backend dynamic-batch-tokenizer-batch-size
        dynamic-batch-tokenizer-batch-timeout ep-dispatch-algorithm ep-num-redundant-experts
        eplb-algorithm eplb-min-rebalancing-utilization-threshold
        eplb-rebalance-layers-per-chunk eplb-rebalance-num-iterations
        flashinfer-a2a-dispatch-type flashinfer-allreduce-fusion-backend
        flashinfer-mxfp4-moe-precision fp4-gemm-backend fp8-gemm-backend fuseep-mode
        hicache-io-backend hicache-mem-layout init-expert-location linear-attn-backend
        linear-attn-decode-backend linear-attn-prefill-backend linear-attn-verify-backend
        mamba-backend mamba-cache-philox-rounds moe-a2a-backend moe-dense-tp-size
        moe-runner-backend monokernel-backend nsa-decode-backend nsa-prefill-backend
        piecewise-cuda-graph-max-tokens prefill-attention-backend qsa-indexer-dtype
        sampling-backend shared-experts-tp-size speculative-attention-mode
        speculative-draft-attention-backend speculative-dsa-topk-backend
        speculative-moe-a2a-backend speculative-moe-runner-backend
        tbo-token-distribution-threshold torch-compile-max-bs triton-attention-num-kv-splits
        triton-attention-split-tile-size
        """,
        switches="""
        dcp-replicate-q-proj disable-aiter-allreduce-fusion-in-decode
        disable-aiter-allreduce-fusion-in-prefill disable-attn-tp-gather
        disable-chunked-prefix-cache disable-cuda-graph disable-cuda-graph-padding
        disable-custom-all-reduce disable-decode-cuda-graph disable-flashinfer-autotune
        disable-flashinfer-cutlass-moe-fp4-allgather disable-mla
        disable-piecewise-cuda-graph disable-prefill-cuda-graph
        disable-shared-experts-fusion disable-tokenizer-batch-decode
        disaggregation-enable-kv-checksum enable-aiter-allreduce-fusion
        enable-amd-monokernel enable-attn-tp-input-scattered enable-cudagraph-gc
        enable-deepep-moe enable-deepseek-v4-fp4-indexer enable-dense-mlp-attn-tp
        enable-dp-lm-head enable-dsa-fused-indexer enable-dynamic-batch-tokenizer
        enable-ep-moe enable-eplb enable-flashinfer-allreduce-fusion
        enable-flashinfer-cutlass-moe enable-flashinfer-mla enable-flashinfer-trtllm-moe
        enable-flashmla enable-fp32-lm-head enable-fused-moe-sum-all-reduce
        enable-fused-qk-norm-rope enable-http-worker-reuseport enable-layernorm-sp
        enable-lean-attention enable-mamba-cache-stochastic-rounding
        enable-megamoe-for-layernorm-sp enable-mscclpp enable-nccl-nvls
        enable-nvidia-megakernel enable-p2p-check enable-page-major-kv-layout
        enable-piecewise-cuda-graph enable-precise-embedding-interpolation
        enable-quant-communications enable-scattered-sconv enable-shared-experts-attn-tp
        enable-single-batch-overlap enable-symm-mem enable-tf32-matmul
        enable-tokenizer-batch-encode enable-torch-compile enable-torch-compile-debug-mode
        enable-torch-symm-mem enable-tp-lm-head-all-to-all enable-trtllm-mla-fp8-prefill
        enable-two-batch-overlap enable-w4a4-mxfp4-megamoe enable-waterfill
        enforce-disable-flashinfer-allreduce-fusion enforce-shared-experts-fusion
        flashinfer-mla-disable-ragged pre-warm-nccl speculative-enable-w4a4-mxfp4-megamoe
        triton-attention-reduce-in-fp32
        """,
        lists="""
        cuda-graph-bs cuda-graph-bs-decode cuda-graph-bs-prefill
        flashinfer-autotune-skip-ops numa-node
        """,
    ),
    other_flags(
        Effect.NOTHING,
        values="""
        admin-api-key api-key base-gpu-id batch-notify-size chat-template chat-template-path
        completion-template constrained-json-max-whitespace-cnt
        constrained-json-whitespace-pattern crash-dump-folder debug-tensor-dump-input-file
        debug-tensor-dump-output-folder decode-log-interval decrypted-config-file
        decrypted-draft-config-file default-chat-template-kwargs device
        disaggregation-bootstrap-port disaggregation-ib-device
        disaggregation-transfer-backend dist-init-addr dist-timeout download-dir dtype
        engine-info-bootstrap-port expert-balancedness-report-mode
        expert-distribution-recorder-buffer-size expert-distribution-recorder-mode
        export-metrics-to-file-dir extra-metric-labels fastapi-root-path file-storage-path
        file-storage-pth forward-hooks forward-pass-metrics-ipc-name
        forward-pass-metrics-worker-id gated-launch-port gc-warning-threshold-secs
        gpu-id-step grammar-backend grpc-http-sidecar-port grpc-port
        grpc-response-timeout-secs hf-chat-template-name host
        http2-initial-connection-window-size http2-max-concurrent-streams kv-canary
        kv-canary-real-data kv-canary-sweep-interval kv-events-config load-format
        load-publish-endpoint load-snapshot-publish-interval log-level log-level-http
        log-requests-format log-requests-level model-checksum model-config-parser model-impl
        model-loader-extra-config modelexpress-config modelopt-checkpoint-restore-path
        modelopt-checkpoint-save-path modelopt-export-path mooncake-ib-device
        msprobe-dump-config nccl-init-addr nccl-port nnodes node-rank
        num-continuous-decode-steps otlp-service-name otlp-traces-endpoint port
        preferred-sampling-params reasoning-parser remote-instance-weight-loader-backend
        remote-instance-weight-loader-seed-instance-ip
        remote-instance-weight-loader-seed-instance-service-port
        remote-instance-weight-loader-send-weights-group-ports return-hidden-states-mode
        revision sampling-defaults sampling-mask-max-tokens served-model-name sidecar
        sidecar-args smg-http-sidecar-port soft-watchdog-timeout ssl-ca-certs ssl-certfile
        ssl-keyfile ssl-keyfile-password startup-weight-load-mode tokenizer-backend
        tokenizer-metrics-custom-labels-header tokenizer-mode tokenizer-path
        tool-call-parser tool-server trace-modules warmups watchdog-timeout watermark-config
        weight-cache-mode weight-cache-socket weight-cache-timeout
        weight-loader-prefetch-num-threads weight-version
        """,
        switches="""
        abort-on-priority-when-disabled checkpoint-engine-wait-weights-before-ready
        constrained-json-disable-any-whitespace debug-cuda-graph delete-ckpt-after-loading
        disable-jump-forward disable-outlines-disk-cache dllm-fdfo enable-cache-report
        enable-custom-logit-processor enable-dp-attention-local-control-broadcast
        enable-draft-weights-cpu-backup enable-forward-pass-metrics enable-http2
        enable-inc-tokenizer enable-layerwise-nvtx-marker enable-llama4-multimodal
        enable-memory-saver enable-metrics enable-metrics-for-all-schedulers
        enable-mfu-metrics enable-nan-detection enable-profile-cuda-graph
        enable-request-time-stats-logging enable-response-store
        enable-return-aux-hidden-states enable-return-hidden-states
        enable-return-indexer-topk enable-return-routed-experts enable-ssl-refresh
        enable-strict-thinking enable-trace enable-watermark enable-weights-cpu-backup
        export-metrics-to-file grpc-mode incremental-streaming-output
        keep-mm-feature-on-device log-requests mlx-enable-sampling
        remote-instance-weight-loader-start-seed-via-transfer-engine return-input-ids
        return-output-ids show-time-cost skip-server-warmup skip-tokenizer-init
        sleep-on-idle smg-grpc-mode stream-response-default-include-usage trust-remote-code
        trust-request-chat-template use-ray weight-loader-disable-mmap
        weight-loader-drop-cache-after-load weight-loader-prefetch-checkpoints
        """,
        lists="""
        bucket-e2e-request-latency bucket-inter-token-latency bucket-time-to-first-token
        custom-weight-loader debug-tensor-dump-layers gc-threshold generation-tokens-buckets
        log-requests-target prefill-delayer-forward-passes-buckets
        prefill-delayer-wait-seconds-buckets prompt-tokens-buckets
        return-aux-hidden-state-layer-ids tokenizer-metrics-allowed-custom-labels
        uvicorn-access-log-exclude-prefixes
        """,
    ),
    other_flags(
        Effect.NOTHING,
        "requests here are text of a given length",
        values="""
        asr-max-buffer-seconds asr-max-concurrent-sessions encoder-bootstrap-port
        encoder-transfer-backend image-processor-backend limit-mm-data-per-request
        media-url-max-file-size-mb mm-attention-backend mm-feature-transport
        mm-global-cache-backend mm-io-worker-num mm-preprocess-cache-size-mb
        mm-process-config mm-processor-worker-num
        """,
        switches="""
        disable-fast-image-processor enable-adaptive-dispatch-to-encoder
        enable-broadcast-mm-inputs-process enable-mm-global-cache enable-multimodal
        enable-prefix-mm-cache language-model-only language-only mm-enable-dp-encoder
        trust-mm-content-hashes
        """,
        lists="allowed-media-domains encoder-register-urls encoder-urls",
    ),
    other_flags(
        Effect.NOTHING,
        "how many drafts are accepted is the scenario's: see acceptance",
        values="""
        spec-trace-dir speculative-accept-threshold-acc speculative-accept-threshold-single
        speculative-draft-load-format speculative-draft-model-revision
        speculative-ngram-capacity speculative-ngram-external-corpus-max-tokens
        speculative-ngram-external-corpus-path speculative-ngram-external-sam-budget
        speculative-ngram-match-type speculative-ngram-max-trie-depth
        speculative-ngram-min-bfs-breadth speculative-token-map
        """,
        switches="speculative-use-block-verification speculative-use-rejection-sampling",
    ),
)
