/*
 * Engine, peers and progress of this component, for the MTL.
 */
#include "btl_velo.h"

#include "../common/velo_faces.h"

static velo_engine_t *engine(void)
{
    return mca_btl_velo_component.engine;
}

static void match(void)
{
    mca_btl_velo_component.matching = true;
}

OPAL_DECLSPEC const velo_faces_t *velo_faces(void);

const velo_faces_t *velo_faces(void)
{
    static const velo_faces_t faces = {
        .bytes = sizeof(velo_faces_t),
        .version = VELO_VERSION,
        .engine = engine,
        .match = match,
        .connect = mca_btl_velo_connect_match,
        .disconnect = mca_btl_velo_disconnect_match,
        .progress = mca_btl_velo_progress,
        .open_matching = velo_match_open,
        .leave_matching = mca_btl_velo_leave_matching,
        .peer_of = velo_match_peer_of,
        .try_send = velo_match_try_send,
        .send_wait = velo_match_send_wait,
        .ssend_wait = velo_match_ssend_wait,
        .send = velo_match_send,
        .post = velo_match_post,
        .receive = velo_match_receive,
        .cancel = velo_match_cancel,
        .probe = velo_match_probe,
        .receive_message = velo_match_receive_message,
    };

    return &faces;
}
