/* The calls of libvpx that the pose cache needs. The structures of libvpx differ between its
   versions, so only C code uses them. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <vpx/vp8cx.h>
#include <vpx/vp8dx.h>
#include <vpx/vpx_decoder.h>
#include <vpx/vpx_encoder.h>

struct visavis_vp8_encoder {
    vpx_codec_ctx_t codec;
    vpx_codec_enc_cfg_t config;
    unsigned width, height;
    uint8_t *active, *segments;
    /* A gray picture. */
    vpx_image_t *blank;
};

/* Creates the encoder of the next frame. The encoder adapts between frames, so a new encoder is
   created for each frame; otherwise equal macroblocks would be encoded differently. */
static int start(struct visavis_vp8_encoder *e) {
    vpx_codec_destroy(&e->codec);
    e->config.g_error_resilient = 0;
    vpx_codec_err_t error = vpx_codec_enc_init(&e->codec, vpx_codec_vp8_cx(), &e->config, 0);
    if (error) return error;
    /* Enabled only here: an encoder that is created as error-resilient refreshes macroblocks at
       changing positions and rejects a segment map. Without error resilience, the golden frame is
       replaced regardless of the flags. */
    e->config.g_error_resilient = VPX_ERROR_RESILIENT_DEFAULT;
    vpx_codec_control(&e->codec, VP8E_SET_NOISE_SENSITIVITY, 0);
    vpx_codec_control(&e->codec, VP8E_SET_STATIC_THRESHOLD, 0);
    vpx_codec_control(&e->codec, VP8E_SET_TOKEN_PARTITIONS, VP8_ONE_TOKENPARTITION);
    return 0;
}

void visavis_vp8_encoder_free(struct visavis_vp8_encoder *e) {
    if (!e) return;
    vpx_codec_destroy(&e->codec);
    vpx_img_free(e->blank);
    free(e->active);
    free(e->segments);
    free(e);
}

struct visavis_vp8_encoder *visavis_vp8_encoder_new(unsigned width, unsigned height) {
    struct visavis_vp8_encoder *e = calloc(1, sizeof *e);
    if (!e) return NULL;
    size_t blocks = (size_t)((width + 15) / 16) * ((height + 15) / 16);
    e->width = width;
    e->height = height;
    e->active = malloc(blocks);
    e->segments = malloc(blocks);
    e->blank = vpx_img_alloc(NULL, VPX_IMG_FMT_I420, width, height, 16);
    vpx_codec_enc_cfg_t *c = &e->config;
    if (!e->active || !e->segments || !e->blank ||
        vpx_codec_enc_config_default(vpx_codec_vp8_cx(), c, 0)) {
        visavis_vp8_encoder_free(e);
        return NULL;
    }
    for (int plane = 0; plane < 3; plane++) {
        unsigned rows = plane ? (height + 1) / 2 : height;
        memset(e->blank->planes[plane], 128, (size_t)e->blank->stride[plane] * rows);
    }
    c->g_w = width;
    c->g_h = height;
    c->g_threads = 1;
    c->g_timebase.num = 1;
    c->g_timebase.den = 25;
    c->g_lag_in_frames = 0;
    c->rc_end_usage = VPX_VBR;
    c->rc_target_bitrate = 20000;
    c->rc_dropframe_thresh = 0;
    c->rc_resize_allowed = 0;
    c->rc_min_quantizer = c->rc_max_quantizer = 8;
    c->kf_mode = VPX_KF_DISABLED;
    if (start(e)) {
        visavis_vp8_encoder_free(e);
        return NULL;
    }
    return e;
}

/* What a frame refers to, and which reference it replaces (FrameKind in vp8.rs): a key frame, the
   second reference frame (altref), a pose frame that refers to golden, and one that refers to
   altref. */
enum visavis_vp8_kind { KEY, ANCHOR, POSE, ANCHORED_POSE };

static vpx_enc_frame_flags_t flags(int kind) {
    vpx_enc_frame_flags_t pose = VP8_EFLAG_NO_REF_LAST | VP8_EFLAG_NO_UPD_LAST |
                                 VP8_EFLAG_NO_UPD_GF | VP8_EFLAG_NO_UPD_ENTROPY;
    switch (kind) {
    case KEY: return VPX_EFLAG_FORCE_KF;
    case ANCHOR: return pose | VP8_EFLAG_NO_REF_ARF;
    case POSE: return pose | VP8_EFLAG_NO_REF_ARF | VP8_EFLAG_NO_UPD_ARF;
    default: return pose | VP8_EFLAG_NO_REF_GF | VP8_EFLAG_NO_UPD_ARF;
    }
}

/* How a macroblock is encoded: BlockMode in vp8.rs (Skipped, Unfiltered, Coded, Lips). */
enum visavis_vp8_block { STILL, STEADY, MOVING, LIPS };

/* Sets the active map and the segments. The loop filter level holds for a whole picture; the
   segments lower it where frames must match (vp8_header.rs). */
static int map_blocks(struct visavis_vp8_encoder *e, const uint8_t *blocks, int finer) {
    unsigned rows = (e->height + 15) / 16, columns = (e->width + 15) / 16;
    for (unsigned i = 0; i < rows * columns; i++) {
        e->active[i] = blocks[i] != STILL;
        e->segments[i] = blocks[i] == LIPS ? 0 : blocks[i] == MOVING ? 2 : 1;
    }
    vpx_active_map_t active = {e->active, rows, columns};
    int error = vpx_codec_control(&e->codec, VP8E_SET_ACTIVEMAP, &active);
    if (error) return error;
    vpx_roi_map_t segments = {
        .roi_map = e->segments,
        .rows = rows,
        .cols = columns,
        .delta_q = {0, -finer, -finer},
        .delta_lf = {0, -63, 0},
    };
    return vpx_codec_control(&e->codec, VP8E_SET_ROI_MAP, &segments);
}

/* Encodes one I420 picture (planes without gaps). `blocks`: the class of each macroblock; `finer`:
   the reduction of the quantizer for all macroblocks except the lips, negative for an increase; `reference`: the decoded
   picture that the frame refers to. A key frame has neither. Returns the length and sets *data,
   which is valid until the next call. Returns a negative libvpx code on failure. */
long visavis_vp8_encode(struct visavis_vp8_encoder *e, const uint8_t *i420, int kind,
                        unsigned quantizer, int finer, const uint8_t *blocks,
                        const uint8_t *reference, const uint8_t **data) {
    int error = start(e);
    if (error) return -error;
    vpx_image_t image;
    if (!vpx_img_wrap(&image, VPX_IMG_FMT_I420, e->width, e->height, 1, (unsigned char *)i420)) {
        return -VPX_CODEC_MEM_ERROR;
    }
    if (kind != KEY) {
        /* The first frame of an encoder is a key frame. Its content does not matter, because the
           reference is replaced below. */
        vpx_codec_control(&e->codec, VP8E_SET_CPUUSED, 16);
        error = vpx_codec_encode(&e->codec, e->blank, 0, 1, VPX_EFLAG_FORCE_KF, VPX_DL_REALTIME);
        if (error) return -error;
        vpx_codec_iter_t drained = NULL;
        while (vpx_codec_get_cx_data(&e->codec, &drained)) continue;
        vpx_ref_frame_t known = {
            .frame_type = kind == ANCHORED_POSE ? VP8_ALTR_FRAME : VP8_GOLD_FRAME,
        };
        if (!vpx_img_wrap(&known.img, VPX_IMG_FMT_I420, e->width, e->height, 1,
                          (unsigned char *)reference)) {
            return -VPX_CODEC_MEM_ERROR;
        }
        if ((error = vpx_codec_control(&e->codec, VP8_SET_REFERENCE, &known))) return -error;
    }
    vpx_codec_control(&e->codec, VP8E_SET_CPUUSED, 0);
    e->config.rc_min_quantizer = e->config.rc_max_quantizer = quantizer;
    if ((error = vpx_codec_enc_config_set(&e->codec, &e->config))) return -error;
    if (kind != KEY && (error = map_blocks(e, blocks, finer))) return -error;
    error = vpx_codec_encode(&e->codec, &image, 1, 1, flags(kind), VPX_DL_GOOD_QUALITY);
    if (error) return -error;
    vpx_codec_iter_t iterator = NULL;
    const vpx_codec_cx_pkt_t *packet;
    while ((packet = vpx_codec_get_cx_data(&e->codec, &iterator))) {
        if (packet->kind != VPX_CODEC_CX_FRAME_PKT) continue;
        *data = packet->data.frame.buf;
        return (long)packet->data.frame.sz;
    }
    return -VPX_CODEC_ERROR;
}

vpx_codec_ctx_t *visavis_vp8_decoder_new(void) {
    vpx_codec_ctx_t *d = calloc(1, sizeof *d);
    if (d && vpx_codec_dec_init(d, vpx_codec_vp8_dx(), NULL, 0)) {
        free(d);
        return NULL;
    }
    return d;
}

/* Decodes one frame into `i420`, which has width × height × 3 / 2 bytes. Returns 0, or a libvpx
   code on failure. */
int visavis_vp8_decode(vpx_codec_ctx_t *d, const uint8_t *data, size_t length, uint8_t *i420,
                       unsigned width, unsigned height) {
    int error = vpx_codec_decode(d, data, (unsigned)length, NULL, 0);
    if (error) return error;
    vpx_codec_iter_t iterator = NULL;
    vpx_image_t *image = vpx_codec_get_frame(d, &iterator);
    if (!image || image->d_w != width || image->d_h != height) return VPX_CODEC_ERROR;
    for (int plane = 0; plane < 3; plane++) {
        unsigned w = plane ? width / 2 : width, h = plane ? height / 2 : height;
        for (unsigned y = 0; y < h; y++, i420 += w) {
            memcpy(i420, image->planes[plane] + (size_t)y * image->stride[plane], w);
        }
    }
    return 0;
}

void visavis_vp8_decoder_free(vpx_codec_ctx_t *d) {
    vpx_codec_destroy(d);
    free(d);
}
